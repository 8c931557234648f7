// Experts of many rows by 8-bit affine weights in groups of 32, by wgmma.
#include "grouped_wide.cuh"

using Affine8 = AffineGroups<Bytes, 32>;
GROUPED_WIDE(affine8_32, Affine8, 2)
GROUPED_PARTS(affine8_32, Affine8, 2)
