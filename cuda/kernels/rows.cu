// Embedding and RMSNorm, a block a row, and operations on each element.
#include "norm.cuh"

DEV float f16_value(u32 bits) { return (float)__builtin_bit_cast(f16, (u16)bits); }
DEV float bf16_value(u32 bits) { return __builtin_bit_cast(float, bits << 16); }
DEV u16 bf16_bits(float v) { return (u16)pack_bf16(v, 0); }
DEV f32x4 f16_x4(u32x2 v) { return {f16_value(v.x), f16_value(v.x >> 16), f16_value(v.y), f16_value(v.y >> 16)}; }
DEV f32x4 bf16_x4(u32x2 v) { return {low_bf16(v.x), high_bf16(v.x), low_bf16(v.y), high_bf16(v.y)}; }

// dst[rows, width] = rows of the table, of kind 0 (f32), 1 (f16) or 2 (bf16), by the step's tokens.
KERNEL(256) void embed(float *dst, const u8 *table, u32 kind, u32 width, const Step *step) {
  launch_dependents();
  dependency_wait();
  const u32 row = bid();
  if (row >= step->rows) return;
  const u64 from = (u64)step->tokens[row] * width;
  dst += (u64)row * width;
  if (width % 4 == 0) { // rows start at multiples of 4 elements
    for (u32 i = tid(); i < width / 4; i += 256) {
      f32x4 v;
      if (kind == 0) v = *(const f32x4 *)(table + (from + i * 4) * 4);
      else {
        u32x2 b = *(const u32x2 *)(table + (from + i * 4) * 2);
        v = kind == 1 ? f16_x4(b) : bf16_x4(b);
      }
      ((f32x4 *)dst)[i] = v;
    }
    return;
  }
  for (u32 i = tid(); i < width; i += 256) {
    if (kind == 0) dst[i] = ((const float *)table)[from + i];
    else {
      u32 b = ((const u16 *)table)[from + i];
      dst[i] = kind == 1 ? f16_value(b) : bf16_value(b);
    }
  }
}

// dst = x / sqrt(mean(x²) + eps) · weight, a block a row, in f32 and bf16 (null: not wanted), up to
// `held` quads of a thread in registers between sum and product. rest: rows may have more, or no whole
// quads, and with a step they are those that it wants results of, packed.
template <u32 held, bool rest> DEV void norm(float *dst32, u16 *dst16, const float *x, const float *weight, u32 width, float eps, const Step *step, float *partials) {
  const u32 t = tid(), quads = rest && width % 4 ? 0 : width / 4, row = bid();
  launch_dependents();
  f32x4 w[held], v[held];
  UNROLL for (u32 j = 0; j < held; j++) {
    const u32 i = t + j * normThreads;
    if (i < quads) w[j] = ((const f32x4 *)weight)[i];
  }
  dependency_wait();
  u32 from = row;
  if (rest && step) {
    if (row >= step->wanted) return;
    from = step->want[row];
  }
  x += (u64)from * width;
  const u64 to = (u64)row * width;
  float sum = 0;
  UNROLL for (u32 j = 0; j < held; j++) {
    const u32 i = t + j * normThreads;
    if (i < quads) v[j] = ((const f32x4 *)x)[i];
  }
  UNROLL for (u32 j = 0; j < held; j++)
    if (t + j * normThreads < quads) sum += squares(v[j]);
  if constexpr (rest) {
    for (u32 i = t + held * normThreads; i < quads; i += normThreads) sum += squares(((const f32x4 *)x)[i]);
    for (u32 i = quads * 4 + t; i < width; i += normThreads) sum += x[i] * x[i];
  }
  sum = warp_sum(sum);
  if (t % 32 == 0) partials[t / 32] = sum;
  sync();
  const float scale = norm_scale(norm_total(partials), width, eps);
  auto put = [&](u32 i, f32x4 a, f32x4 b) INLINE {
    a = normed(a, scale, b);
    if (dst32) *(f32x4 *)(dst32 + to + i * 4) = a;
    if (dst16) *(u32x2 *)(dst16 + to + i * 4) = pack_bf16_x4(a);
  };
  UNROLL for (u32 j = 0; j < held; j++) {
    const u32 i = t + j * normThreads;
    if (i < quads) put(i, v[j], w[j]);
  }
  if constexpr (rest) {
    for (u32 i = t + held * normThreads; i < quads; i += normThreads) put(i, ((const f32x4 *)x)[i], ((const f32x4 *)weight)[i]);
    for (u32 i = quads * 4 + t; i < width; i += normThreads) {
      const float a = x[i] * scale * weight[i];
      if (dst32) dst32[to + i] = a;
      if (dst16) dst16[to + i] = bf16_bits(a);
    }
  }
}

KERNEL(normThreads) void rms_norm(float *dst32, u16 *dst16, const float *x, const float *weight, u32 width, float eps, const Step *step) {
  SHARED(rms_norm) float partials[normThreads / 32];
  norm<4, true>(dst32, dst16, x, weight, width, eps, step, partials);
}

// A kernel a width: a step has two norms a layer, whose code comes from L2.
#define NORM_WHOLE(held)                                                                                                          \
  KERNEL(normThreads) void rms_norm_##held(float *dst32, u16 *dst16, const float *x, const float *weight, u32 width, float eps) { \
    SHARED(rms_norm_##held) float partials[normThreads / 32];                                                                     \
    norm<held, false>(dst32, dst16, x, weight, width, eps, nullptr, partials);                                                    \
  }                                                                                                                               \
  REGISTER(rms_norm_##held)
NORM_WHOLE(1)
NORM_WHOLE(2)
NORM_WHOLE(3)
NORM_WHOLE(4)

// dst = src rounded to bf16, 8 elements a thread.
KERNEL(256) void to_bf16(u16 *dst, const float *src, u32 n) {
  launch_dependents();
  dependency_wait();
  const u32 i = (bid() * 256 + tid()) * 8;
  if (i + 8 <= n) {
    u32x2 a = pack_bf16_x4(*(const f32x4 *)(src + i)), b = pack_bf16_x4(*(const f32x4 *)(src + i + 4));
    *(u32x4 *)(dst + i) = {a.x, a.y, b.x, b.y};
    return;
  }
  for (u32 j = i; j < n; j++) dst[j] = bf16_bits(src[j]);
}

// dst = src widened, 8 elements a thread.
KERNEL(256) void to_f32(float *dst, const u16 *src, u32 n) {
  launch_dependents();
  dependency_wait();
  const u32 i = (bid() * 256 + tid()) * 8;
  if (i + 8 <= n) {
    u32x4 v = *(const u32x4 *)(src + i);
    *(f32x4 *)(dst + i) = bf16_x4({v.x, v.y});
    *(f32x4 *)(dst + i + 4) = bf16_x4({v.z, v.w});
    return;
  }
  for (u32 j = i; j < n; j++) dst[j] = bf16_value(src[j]);
}

// dst[row, at : at + width] = src[row], a block a row, in f32 and bf16 (null: not wanted); rows of dst are stride wide.
KERNEL(256) void put_columns(float *dst32, u16 *dst16, const float *src, u32 width, u32 at, u32 stride) {
  launch_dependents();
  dependency_wait();
  const u64 to = (u64)bid() * stride + at;
  src += (u64)bid() * width;
  const u32 quads = (width | at | stride) % 4 == 0 ? width / 4 : 0;
  for (u32 i = tid(); i < quads; i += 256) {
    f32x4 v = ((const f32x4 *)src)[i];
    if (dst32) *(f32x4 *)(dst32 + to + i * 4) = v;
    if (dst16) *(u32x2 *)(dst16 + to + i * 4) = pack_bf16_x4(v);
  }
  for (u32 i = quads * 4 + tid(); i < width; i += 256) {
    if (dst32) dst32[to + i] = src[i];
    if (dst16) dst16[to + i] = bf16_bits(src[i]);
  }
}

// silu(gate) · up
DEV float gated(float gate, float up) { return silu_precise(gate) * up; }

// dst = silu(gate) · up, 4 elements a thread, in f32 and bf16 (null: not wanted); gate and up are bf16 where half is set, else f32.
KERNEL(256) void gated_act(float *dst32, u16 *dst16, const void *gate, const void *up, u32 half, u32 n) {
  launch_dependents();
  dependency_wait();
  const u32 i = (bid() * 256 + tid()) * 4;
  if (i + 4 <= n) {
    f32x4 g, u;
    if (half) {
      g = bf16_x4(*(const u32x2 *)((const u16 *)gate + i));
      u = bf16_x4(*(const u32x2 *)((const u16 *)up + i));
    } else {
      g = *(const f32x4 *)((const float *)gate + i);
      u = *(const f32x4 *)((const float *)up + i);
    }
    g = {gated(g.x, u.x), gated(g.y, u.y), gated(g.z, u.z), gated(g.w, u.w)};
    if (dst32) *(f32x4 *)(dst32 + i) = g;
    if (dst16) *(u32x2 *)(dst16 + i) = pack_bf16_x4(g);
    return;
  }
  for (u32 j = i; j < n; j++) {
    float v = half ? gated(bf16_value(((const u16 *)gate)[j]), bf16_value(((const u16 *)up)[j])) : gated(((const float *)gate)[j], ((const float *)up)[j]);
    if (dst32) dst32[j] = v;
    if (dst16) dst16[j] = bf16_bits(v);
  }
}

REGISTER(embed)
REGISTER(rms_norm)
REGISTER(to_bf16)
REGISTER(to_f32)
REGISTER(put_columns)
REGISTER(gated_act)
