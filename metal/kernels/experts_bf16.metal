// Experts and routers by weights in bf16.
#include "experts.h.metal"
#include "router.h.metal"

EXPERTS_KERNELS(BF16Rows, "bf16")
ROUTER(BF16Rows, "bf16")
EXPERTS_RAGGED(BF16Rows, "bf16")
ROUTER_RAGGED(BF16Rows, "bf16")
