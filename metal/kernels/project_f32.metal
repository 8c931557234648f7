// Projections by weights in f32.
#include "matvec.h.metal"

PROJECT_KERNELS(F32Rows, "f32")
