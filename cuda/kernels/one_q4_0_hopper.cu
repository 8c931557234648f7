// Projections of one row by Q4_0 blocks.
#include "one.cuh"

ONE(one_q4_0, PackedQ4_0)
