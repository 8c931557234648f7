// Projections by weights in f16.
#include "matvec.h.metal"

PROJECT_KERNELS(F16Rows, "f16")
PROJECT_RAGGED(F16Rows, "f16")
