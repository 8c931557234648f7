// Experts by 4-bit affine weights in groups of 64 or 128.
#include "experts.cuh"

using Affine4 = AffineGroups<Nibbles, 64>;
EXPERTS(affine4, Affine4)
