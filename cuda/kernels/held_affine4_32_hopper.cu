// Projections of up to 16 rows by 4-bit affine weights in groups of 32.
#include "held.cuh"

using Affine4 = AffineGroups<Nibbles, 32>;
HELD_ALL(held_affine4_32, Affine4)
