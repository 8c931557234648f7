// Experts and routers by weights in f32.
#include "experts.h.metal"
#include "router.h.metal"

EXPERTS_KERNELS(F32Rows, "f32")
ROUTER(F32Rows, "f32")
EXPERTS_RAGGED(F32Rows, "f32")
ROUTER_RAGGED(F32Rows, "f32")
