// Experts of many rows by 4-bit affine weights in groups of 32, by wgmma.
#include "grouped_wide.cuh"

using Affine4 = AffineGroups<Nibbles, 32>;
GROUPED_WIDE(affine4_32, Affine4, 3)
GROUPED_PARTS(affine4_32, Affine4, 3)
