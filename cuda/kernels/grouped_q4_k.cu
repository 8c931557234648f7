// Experts of many rows by Q4_K blocks.
#include "grouped.cuh"

GROUPED(q4_k, PackedQ4_K)
