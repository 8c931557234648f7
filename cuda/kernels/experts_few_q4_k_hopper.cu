// Few rows of a mixture by Q4_K blocks.
#include "experts_few.cuh"

EXPERTS_FEW(q4_k, PackedQ4_K)
