// Projections of many rows by 8-bit affine weights in groups of 64 or 128.
#include "tiled.cuh"

using Affine8 = AffineGroups<Bytes, 64>;
TILED_BYTES(tiled_affine8, Affine8)
