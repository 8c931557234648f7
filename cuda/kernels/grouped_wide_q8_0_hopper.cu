// Experts of many rows by Q8_0 blocks, by wgmma.
#include "grouped_wide.cuh"

GROUPED_WIDE(q8_0, PackedQ8_0, 2)
GROUPED_PARTS(q8_0, PackedQ8_0, 2)
