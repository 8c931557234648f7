// Experts by bf16 weights as stored.
#include "experts.cuh"

EXPERTS(bf16, Rows)
