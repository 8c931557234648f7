// Experts and routers by weights in q6_k.
#include "experts.h.metal"
#include "router.h.metal"

EXPERTS_KERNELS(Q6_K, "q6_k")
ROUTER(Q6_K, "q6_k")
