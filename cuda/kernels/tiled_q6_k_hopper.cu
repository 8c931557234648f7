// Projections of many rows by Q6_K blocks.
#include "tiled.cuh"

TILED_ALL(tiled_q6_k, PackedQ6_K)
