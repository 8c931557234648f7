// Projections by weights in f32.
#include "matvec.h.metal"

PROJECT_KERNELS(F32Rows, "f32")
PROJECT_RAGGED(F32Rows, "f32")
