// Experts by Q6_K blocks.
#include "experts.cuh"

EXPERTS(q6_k, PackedQ6_K)
