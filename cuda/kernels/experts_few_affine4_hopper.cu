// Few rows of a mixture by 4-bit affine weights in groups of 64 or 128.
#include "experts_few.cuh"

using Affine4 = AffineGroups<Nibbles, 64>;
EXPERTS_FEW(affine4, Affine4)
