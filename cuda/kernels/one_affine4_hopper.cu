// Projections of one row by 4-bit affine weights in groups of 64 or 128.
#include "one.cuh"

using Affine4 = AffineGroups<Nibbles, 64>;
ONE(one_affine4, Affine4)
