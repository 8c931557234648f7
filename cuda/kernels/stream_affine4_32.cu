// Projections by 4-bit affine weights in groups of 32.
#include "stream.cuh"

using Affine4 = AffineGroups<Nibbles, 32>;
STREAM_ALL(stream_affine4_32, Affine4)
