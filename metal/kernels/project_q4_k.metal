// Projections by weights in q4_k.
#include "matvec.h.metal"

PROJECT_KERNELS(Q4_K, "q4_k")
