// Projections by Q8_0 blocks.
#include "stream.cuh"

STREAM_ALL(stream_q8_0, PackedQ8_0)
