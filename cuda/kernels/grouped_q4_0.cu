// Experts of many rows by Q4_0 blocks.
#include "grouped.cuh"

GROUPED(q4_0, PackedQ4_0)
