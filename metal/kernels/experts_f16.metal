// Experts and routers by weights in f16.
#include "experts.h.metal"
#include "router.h.metal"

EXPERTS_KERNELS(F16Rows, "f16")
ROUTER(F16Rows, "f16")
EXPERTS_RAGGED(F16Rows, "f16")
ROUTER_RAGGED(F16Rows, "f16")
