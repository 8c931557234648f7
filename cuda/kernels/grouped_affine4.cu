// Experts of many rows by 4-bit affine weights in groups of 64 or 128.
#include "grouped.cuh"

using Affine4 = AffineGroups<Nibbles, 64>;
GROUPED(affine4, Affine4)
