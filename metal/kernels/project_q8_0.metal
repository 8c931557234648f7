// Projections by weights in q8_0.
#include "matvec.h.metal"

PROJECT_KERNELS(Q8_0, "q8_0")
