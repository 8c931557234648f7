// Experts by 8-bit affine weights in groups of 64 or 128.
#include "experts.cuh"

using Affine8 = AffineGroups<Bytes, 64>;
EXPERTS(affine8, Affine8)
