// Projections by weights in affine4.
#include "matvec.h.metal"

PROJECT_KERNELS(Affine4, "affine4")
