// Projections of more than 32 rows, by 4-bit affine weights in groups of 64 or 128.
#include "wide.cuh"

using Affine4 = AffineGroups<Nibbles, 64>;
WIDE_ALL(wide_affine4, Affine4)
WIDE_PAIR(wide_affine4, Affine4)
