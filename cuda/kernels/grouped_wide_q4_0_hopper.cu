// Experts of many rows by Q4_0 blocks, by wgmma.
#include "grouped_wide.cuh"

GROUPED_WIDE(q4_0, PackedQ4_0, 3)
GROUPED_PARTS(q4_0, PackedQ4_0, 3)
