// Projections by weights in bf16.
#include "matvec.h.metal"

PROJECT_KERNELS(BF16Rows, "bf16")
PROJECT_RAGGED(BF16Rows, "bf16")
