// Experts and routers by weights in q4_k.
#include "experts.h.metal"
#include "router.h.metal"

EXPERTS_KERNELS(Q4_K, "q4_k")
ROUTER(Q4_K, "q4_k")
