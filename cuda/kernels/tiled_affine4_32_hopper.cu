// Projections of many rows by 4-bit affine weights in groups of 32.
#include "tiled.cuh"

using Affine4 = AffineGroups<Nibbles, 32>;
TILED_ALL(tiled_affine4_32, Affine4)
TILED_ROUNDED(tiled_affine4_32, Affine4)
