// Projections of more than 32 rows, by Q8_0 blocks.
#include "wide.cuh"

WIDE_ALL(wide_q8_0, PackedQ8_0)
