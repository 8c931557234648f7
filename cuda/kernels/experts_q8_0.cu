// Experts by Q8_0 blocks.
#include "experts.cuh"

EXPERTS(q8_0, PackedQ8_0)
