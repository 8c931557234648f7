// Projections by 8-bit affine weights in groups of 64 or 128.
#include "stream.cuh"

using Affine8 = AffineGroups<Bytes, 64>;
STREAM_ALL(stream_affine8, Affine8)
