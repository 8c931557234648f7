// Few rows of a mixture by Q4_0 blocks.
#include "experts_few.cuh"

EXPERTS_FEW(q4_0, PackedQ4_0)
