// Experts of many rows by Q8_0 blocks.
#include "grouped.cuh"

GROUPED(q8_0, PackedQ8_0)
