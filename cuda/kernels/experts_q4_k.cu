// Experts by Q4_K blocks.
#include "experts.cuh"

EXPERTS(q4_k, PackedQ4_K)
