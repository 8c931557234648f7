// Projections of more than 32 rows, by 8-bit affine weights in groups of 32.
#include "wide.cuh"

using Affine8 = AffineGroups<Bytes, 32>;
WIDE_ALL(wide_affine8_32, Affine8)
