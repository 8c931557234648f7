// Projections of many rows by Q8_0 blocks.
#include "tiled.cuh"

TILED_BYTES(tiled_q8_0, PackedQ8_0)
