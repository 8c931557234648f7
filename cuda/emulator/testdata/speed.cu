// What the emulator's own speed is measured with.
#include "gpu.cuh"

KERNEL(128) void speed_mma(float *out, u32 n) {
  dependency_wait();
  float c[4] = {};
  u32 a[4] = {0x3f803f80, 0x3f803e80, 0xbf803f80, 0}, b[2] = {0x3f803f80, 0x3f803f80};
  for (u32 i = 0; i < n; i++) mma_bf16(c, a, b);
  out[tid()] = c[0] + c[1] + c[2] + c[3];
}

KERNEL(128) void speed_shuffle(float *out, u32 n) {
  dependency_wait();
  float v = float(tid());
  for (u32 i = 0; i < n; i++) v = shfl_xor(v, 1) + 1;
  out[tid()] = v;
}

KERNEL(128) void speed_sync(float *out, u32 n) {
  dependency_wait();
  for (u32 i = 0; i < n; i++) sync();
  out[tid()] = 1;
}

KERNEL(128) void speed_fma(float *out, u32 n) {
  dependency_wait();
  float v = float(tid());
  for (u32 i = 0; i < n; i++) out[tid()] = v = fma(v, 0.5f, 1);
}

REGISTER(speed_mma)
REGISTER(speed_shuffle)
REGISTER(speed_sync)
REGISTER(speed_fma)
