// Projections of many rows by Q4_0 blocks.
#include "tiled.cuh"

TILED_ALL(tiled_q4_0, PackedQ4_0)
