// Experts and routers by weights in q4_0.
#include "experts.h.metal"
#include "router.h.metal"

EXPERTS_KERNELS(Q4_0, "q4_0")
ROUTER(Q4_0, "q4_0")
