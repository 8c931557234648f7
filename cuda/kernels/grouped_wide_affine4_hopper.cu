// Experts of many rows by 4-bit affine weights in groups of 64 or 128, by wgmma.
#include "grouped_wide.cuh"

using Affine4 = AffineGroups<Nibbles, 64>;
GROUPED_WIDE(affine4, Affine4, 3)
GROUPED_PARTS(affine4, Affine4, 3)
