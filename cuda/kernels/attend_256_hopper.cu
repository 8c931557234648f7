// Attention of prefill passes by wgmma: heads of 256 numbers, as gated ones have.
#include "flash_hopper.cuh"

FLASH(flash_hopper_256, 256, 2, false)
