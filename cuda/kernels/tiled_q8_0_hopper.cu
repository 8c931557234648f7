// Projections of many rows by Q8_0 blocks.
#include "tiled.cuh"

TILED_ALL(tiled_q8_0, PackedQ8_0)
