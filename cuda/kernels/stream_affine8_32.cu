// Projections by 8-bit affine weights in groups of 32.
#include "stream.cuh"

using Affine8 = AffineGroups<Bytes, 32>;
STREAM_ALL(stream_affine8_32, Affine8)
