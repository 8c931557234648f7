// Projections of many rows by 8-bit affine weights in groups of 32.
#include "tiled.cuh"

using Affine8 = AffineGroups<Bytes, 32>;
TILED_BYTES(tiled_affine8_32, Affine8)
