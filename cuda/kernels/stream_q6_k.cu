// Projections by Q6_K blocks.
#include "stream.cuh"

STREAM_ALL(stream_q6_k, PackedQ6_K)
