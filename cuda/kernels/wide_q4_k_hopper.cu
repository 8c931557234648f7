// Projections of more than 32 rows, by Q4_K blocks.
#include "wide.cuh"

WIDE_ALL(wide_q4_k, PackedQ4_K)
