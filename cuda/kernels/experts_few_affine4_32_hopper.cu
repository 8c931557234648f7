// Few rows of a mixture by 4-bit affine weights in groups of 32.
#include "experts_few.cuh"

using Affine4 = AffineGroups<Nibbles, 32>;
EXPERTS_FEW(affine4_32, Affine4)
