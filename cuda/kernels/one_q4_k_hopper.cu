// Projections of one row by Q4_K blocks.
#include "one.cuh"

ONE(one_q4_k, PackedQ4_K)
