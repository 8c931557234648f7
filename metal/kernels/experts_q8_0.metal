// Experts and routers by weights in q8_0.
#include "experts.h.metal"
#include "router.h.metal"

EXPERTS_KERNELS(Q8_0, "q8_0")
ROUTER(Q8_0, "q8_0")
