// Experts of many rows by 8-bit affine weights in groups of 32.
#include "grouped.cuh"

using Affine8 = AffineGroups<Bytes, 32>;
GROUPED(affine8_32, Affine8)
