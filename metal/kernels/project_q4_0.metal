// Projections by weights in q4_0.
#include "matvec.h.metal"

PROJECT_KERNELS(Q4_0, "q4_0")
