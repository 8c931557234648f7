// Experts and routers by weights in affine4.
#include "experts.h.metal"
#include "router.h.metal"

EXPERTS_KERNELS(Affine4, "affine4")
ROUTER(Affine4, "affine4")
