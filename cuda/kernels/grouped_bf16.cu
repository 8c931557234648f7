// Experts of many rows by bf16 weights as stored.
#include "grouped.cuh"

GROUPED(bf16, Rows)
