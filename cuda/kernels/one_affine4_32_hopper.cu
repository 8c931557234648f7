// Projections of one row by 4-bit affine weights in groups of 32.
#include "one.cuh"

using Affine4 = AffineGroups<Nibbles, 32>;
ONE(one_affine4_32, Affine4)
