// Projections of many rows by Q4_K blocks.
#include "tiled.cuh"

TILED_ALL(tiled_q4_k, PackedQ4_K)
