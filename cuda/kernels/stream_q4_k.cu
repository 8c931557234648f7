// Projections by Q4_K blocks.
#include "stream.cuh"

STREAM_ALL(stream_q4_k, PackedQ4_K)
