// Experts of many rows by 4-bit affine weights in groups of 32.
#include "grouped.cuh"

using Affine4 = AffineGroups<Nibbles, 32>;
GROUPED(affine4_32, Affine4)
