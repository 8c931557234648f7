// One kernel an intrinsic of gpu.cuh: what the emulator says of them is held
// against a real device by the same self-test (../intrinsics.go).
#include "gpu.cuh"

// out[16,8] = a[16,16] · b[8,16]ᵀ of one warp, by the layout of m16n8k16.
KERNEL(32) void intrinsic_mma(const bf16 *a, const bf16 *b, float *out) {
  launch_dependents();
  dependency_wait();
  u32 g = tid() / 4, t = tid() % 4;
  auto pair = [](const bf16 *m, u32 row, u32 column) { return *(const u32 *)(m + row * 16 + column); };
  u32 fa[4] = {pair(a, g, t * 2), pair(a, g + 8, t * 2), pair(a, g, t * 2 + 8), pair(a, g + 8, t * 2 + 8)};
  u32 fb[2] = {pair(b, g, t * 2), pair(b, g, t * 2 + 8)};
  float c[4] = {};
  mma_bf16(c, fa, fb);
  for (u32 i = 0; i < 4; i++) out[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = c[i];
}

// Eight-row tiles of 256 numbers as load_matrix and its transposed form give them: out[2][32][4].
KERNEL(32) void intrinsic_load_matrix(const u16 *in, u32 *out) {
  launch_dependents();
  dependency_wait();
  alignas(16) SHARED(intrinsic_load_matrix) u16 tile[256];
  copy_async(tile + tid() * 8, in + tid() * 8);
  copy_commit();
  copy_wait<0>();
  sync_warp();
  u32 r[4];
  load_matrix(r, tile + tid() * 8);
  for (u32 i = 0; i < 4; i++) out[tid() * 4 + i] = r[i];
  load_matrix_transposed(r, tile + tid() * 8);
  for (u32 i = 0; i < 4; i++) out[128 + tid() * 4 + i] = r[i];
}

// Operations of different kinds in turn, as a product of tiles makes them: the
// results of one must outlive the operands of the next. out[16,8] = a·bᵀ + a·bᵀ
// with c carried by shuffles to the lane's neighbour and back between the two.
KERNEL(32) void intrinsic_mixed(const bf16 *a, const bf16 *b, float *out) {
  launch_dependents();
  dependency_wait();
  alignas(16) SHARED(intrinsic_mixed) bf16 tile[256 + 128];
  u32 lane = tid();
  copy_async(tile + lane * 8, a + lane * 8);
  if (lane < 16) copy_async(tile + 256 + lane * 8, b + lane * 8);
  copy_commit();
  copy_wait<0>();
  sync_warp();
  float c[4] = {};
  for (u32 i = 0; i < 2; i++) {
    u32 fa[4], both[4];
    load_matrix(fa, tile + lane % 16 * 16 + lane / 16 * 8);
    load_matrix(both, tile + 256 + lane % 8 * 16 + lane / 8 % 2 * 8);
    u32 fb[2] = {both[0], both[1]};
    mma_bf16(c, fa, fb);
    UNROLL for (u32 j = 0; j < 4; j++) c[j] = shfl(shfl_xor(c[j], 1), int(lane ^ 1));
  }
  for (u32 i = 0; i < 4; i++) out[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[i];
}

// Shuffles, reductions and rounding of one warp's numbers: out[6][32].
KERNEL(32) void intrinsic_shuffle(const float *in, float *out) {
  launch_dependents();
  dependency_wait();
  float v = in[tid()];
  u32 p = pack_bf16(v, v * 3);
  out[tid()] = shfl_xor(v, 5);
  out[32 + tid()] = shfl(v, int(tid() * 7 % 32));
  out[64 + tid()] = warp_sum(v);
  out[96 + tid()] = warp_max(v);
  out[128 + tid()] = low_bf16(p);
  out[160 + tid()] = high_bf16(p);
}

// Approximations: out[5][n].
KERNEL(128) void intrinsic_math(const float *in, float *out, u32 n) {
  launch_dependents();
  dependency_wait();
  u32 i = bid() * 128 + tid();
  if (i >= n) return;
  float x = in[i];
  out[i] = exp(x);
  out[n + i] = ex2(x);
  out[2 * n + i] = lg2(x * x + 1);
  out[3 * n + i] = rsqrt(x * x + 1);
  out[4 * n + i] = reciprocal(x * x + 1);
}

// The sum of in[n] by blocks, joined by the last of them to arrive (sum, then
// the number of blocks that were last: 1); the ticket is zero before and after.
KERNEL(128) void intrinsic_ticket(const float *in, float *partials, u32 *ticket, float *out, u32 n) {
  launch_dependents();
  dependency_wait();
  DYNAMIC_SHARED(intrinsic_ticket, memory);
  float *sums = (float *)memory;
  SHARED(intrinsic_ticket) u32 last;
  u32 i = bid() * 128 + tid();
  float s = warp_sum(i < n ? in[i] : 0);
  if (tid() % 32 == 0) sums[tid() / 32] = s;
  sync();
  if (tid() == 0) {
    partials[bid()] = sums[0] + sums[1] + sums[2] + sums[3];
    fence();
    last = atomic_add(ticket, 1) == gdim() - 1;
  }
  sync();
  if (!last || tid() != 0) return;
  fence();
  float total = 0;
  for (u32 b = 0; b < gdim(); b++) total += load_l2(partials + b);
  out[0] = total;
  out[1] += 1;
  *ticket = 0;
}

REGISTER(intrinsic_mma)
REGISTER(intrinsic_load_matrix)
REGISTER(intrinsic_mixed)
REGISTER(intrinsic_shuffle)
REGISTER(intrinsic_math)
REGISTER(intrinsic_ticket)
