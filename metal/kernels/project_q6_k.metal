// Projections by weights in q6_k.
#include "matvec.h.metal"

PROJECT_KERNELS(Q6_K, "q6_k")
