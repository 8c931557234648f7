// Experts by Q4_0 blocks.
#include "experts.cuh"

EXPERTS(q4_0, PackedQ4_0)
