// Projections of more than 32 rows, by 8-bit affine weights in groups of 64 or 128.
#include "wide.cuh"

using Affine8 = AffineGroups<Bytes, 64>;
WIDE_ALL(wide_affine8, Affine8)
