// Projections of more than 32 rows, by Q6_K blocks.
#include "wide.cuh"

WIDE_ALL(wide_q6_k, PackedQ6_K)
