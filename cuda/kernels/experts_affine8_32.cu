// Experts by 8-bit affine weights in groups of 32.
#include "experts.cuh"

using Affine8 = AffineGroups<Bytes, 32>;
EXPERTS(affine8_32, Affine8)
