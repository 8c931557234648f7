// Projections of up to 16 rows by 4-bit affine weights in groups of 64 or 128.
#include "held.cuh"

using Affine4 = AffineGroups<Nibbles, 64>;
HELD_ALL(held_affine4, Affine4)
