// Experts of many rows by Q6_K blocks, by wgmma.
#include "grouped_wide.cuh"

GROUPED_WIDE(q6_k, PackedQ6_K, 2)
GROUPED_PARTS(q6_k, PackedQ6_K, 2)
