// Experts by 4-bit affine weights in groups of 32.
#include "experts.cuh"

using Affine4 = AffineGroups<Nibbles, 32>;
EXPERTS(affine4_32, Affine4)
