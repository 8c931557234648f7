// Projections of more than 32 rows, by Q4_0 blocks.
#include "wide.cuh"

WIDE_ALL(wide_q4_0, PackedQ4_0)
WIDE_PAIR(wide_q4_0, PackedQ4_0)
