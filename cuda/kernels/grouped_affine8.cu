// Experts of many rows by 8-bit affine weights in groups of 64 or 128.
#include "grouped.cuh"

using Affine8 = AffineGroups<Bytes, 64>;
GROUPED(affine8, Affine8)
