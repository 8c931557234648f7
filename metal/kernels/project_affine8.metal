// Projections by weights in affine8.
#include "matvec.h.metal"

PROJECT_KERNELS(Affine8, "affine8")
