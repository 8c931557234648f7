// Experts and routers by weights in affine8.
#include "experts.h.metal"
#include "router.h.metal"

EXPERTS_KERNELS(Affine8, "affine8")
ROUTER(Affine8, "affine8")
