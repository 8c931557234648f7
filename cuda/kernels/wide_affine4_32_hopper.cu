// Projections of more than 32 rows, by 4-bit affine weights in groups of 32.
#include "wide.cuh"

using Affine4 = AffineGroups<Nibbles, 32>;
WIDE_ALL(wide_affine4_32, Affine4)
WIDE_PAIR(wide_affine4_32, Affine4)
