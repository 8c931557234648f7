// Projections by bf16 weights as stored.
#include "stream.cuh"

STREAM_ALL(stream_bf16, Rows)
STREAM_FOUR(stream_bf16, Rows)
