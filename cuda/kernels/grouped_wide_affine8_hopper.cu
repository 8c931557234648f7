// Experts of many rows by 8-bit affine weights in groups of 64 or 128, by wgmma.
#include "grouped_wide.cuh"

using Affine8 = AffineGroups<Bytes, 64>;
GROUPED_WIDE(affine8, Affine8, 2)
GROUPED_PARTS(affine8, Affine8, 2)
