// Attention of prefill passes by wgmma: heads of 128 numbers.
#include "flash_hopper.cuh"

FLASH(flash_hopper, 128, 3, false)
FLASH(flash_hopper_grouped, 128, 3, true)
