// Projections by Q4_0 blocks.
#include "stream.cuh"

STREAM_ALL(stream_q4_0, PackedQ4_0)
