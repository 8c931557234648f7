// Projections by 4-bit affine weights in groups of 64 or 128.
#include "stream.cuh"

using Affine4 = AffineGroups<Nibbles, 64>;
STREAM_ALL(stream_affine4, Affine4)
