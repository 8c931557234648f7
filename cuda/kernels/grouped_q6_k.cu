// Experts of many rows by Q6_K blocks.
#include "grouped.cuh"

GROUPED(q6_k, PackedQ6_K)
