// Projections of many rows by 4-bit affine weights in groups of 64 or 128.
#include "tiled.cuh"

using Affine4 = AffineGroups<Nibbles, 64>;
TILED_ALL(tiled_affine4, Affine4)
TILED_ROUNDED(tiled_affine4, Affine4)
