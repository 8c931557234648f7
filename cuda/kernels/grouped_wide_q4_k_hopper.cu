// Experts of many rows by Q4_K blocks, by wgmma.
#include "grouped_wide.cuh"

GROUPED_WIDE(q4_k, PackedQ4_K, 3)
GROUPED_PARTS(q4_k, PackedQ4_K, 3)
