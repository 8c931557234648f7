// Products of a warpgroup, in each form that the kernels use, and what the
// emulator must refuse of them. a is [64][64] bf16; b is [columns][64], or, for
// kernels of rows, [64][columns]; out is f32 [64][columns], added to.
#include "hopper.cuh"
#ifdef __NVPTX__ // the tests' images are read for their entries alone
template <int tiles> DEV void product(float (&)[tiles][4], const u32 (&)[4], u64, bool, bool = false) {}
template <int tiles> DEV void product(float (&)[tiles][4], u64, u64, bool) {}
#endif

enum Form { OF_TILES, OF_REGISTERS, OF_ROWS };
enum Fault { NONE, TOUCHES_SUMS, TOUCHES_REGISTERS, ENDS_EARLY, ONE_MORE, OTHER_SHAPE, NO_WARPGROUP };

// swizzle copies lines of 64 elements, pitch apart, to shared memory.
DEV void swizzle(u32 to, const u16 *from, u32 lines, u32 pitch) {
  for (u32 i = tid() % 128; i < lines * 8; i += 128) copy_to(to + i / 8 * 128 + ((i ^ i / 8) % 8 << 4), from + i / 8 * pitch + i % 8 * 8, true);
}

template <Form form, int tiles, Fault F> DEV void products(u8 *memory, const u16 *a, const u16 *b, float *out) {
  constexpr u32 columns = tiles * 8;
  const u32 base = (shared_address(memory) + 1023) / 1024 * 1024, at_b = base + 8192, lane = tid() % 32, warp = tid() / 32 % 4;
  dependency_wait();
  if (F == NO_WARPGROUP ? tid() < 128 : tid() >= 128) return;
  swizzle(base, a, 64, 64);
  if (form == OF_ROWS) {
    for (u32 half = 0; half < columns / 64; half++) swizzle(at_b + half * 8192, b + half * 64, 64, columns);
  } else {
    swizzle(at_b, b, columns, 64);
  }
  copy_commit();
  copy_wait<0>();
  proxy_fence();
  sync_group(1, F == NO_WARPGROUP ? 32 : 128);
  float c[tiles][4];
  float *const to = out + (warp * 16 + lane / 4) * columns + lane % 4 * 2;
  for (u32 i = 0; i < tiles * 4; i++) c[i / 4][i % 4] = to[i / 4 * 8 + i % 2 + i % 4 / 2 * 8 * columns];
  u32 w[4][4];
  for (u32 k = 0; k < 4; k++) load_matrix_at(w[k], base + (warp * 16 + lane % 16) * 128 + ((k * 2 + lane / 16 ^ lane % 8) << 4));
  products_fence();
  for (u32 k = 0; k < 4; k++) {
    if constexpr (form == OF_TILES) product(c, descriptor(base) + k * 2, descriptor(at_b) + k * 2, true);
    else if constexpr (form == OF_REGISTERS) product(c, w[k], descriptor(at_b) + k * 2, true);
    else product(c, w[k], descriptor(at_b, 8192) + k * 128, true, true);
    if (k == 1) products_commit();
  }
  products_commit();
  if (F == OTHER_SHAPE) product(*(float(*)[2][4])c, w[0], descriptor(at_b), true);
  if (F == ONE_MORE && warp == 3) {
    products_wait<1>();
    products_fence();
    product(c, w[0], descriptor(at_b), true);
    products_commit();
  }
  if (F == TOUCHES_SUMS) c[0][0] = 0;
  if (F == TOUCHES_REGISTERS) w[1][2] = 0;
  if (F == ENDS_EARLY) return;
  products_wait<0>(c);
  for (u32 i = 0; i < tiles * 4; i++) to[i / 4 * 8 + i % 2 + i % 4 / 2 * 8 * columns] = c[i / 4][i % 4];
}

#define PRODUCTS(name, form, tiles, fault)                                                \
  HOPPER_KERNEL(160) void name(const u16 *a, const u16 *b, float *out) {                  \
    DYNAMIC_SHARED(name, memory);                                                         \
    products<form, tiles, fault>(memory, a, b, out);                                      \
  }                                                                                       \
  REGISTER(name)

PRODUCTS(tiles_128, OF_TILES, 16, NONE)
PRODUCTS(tiles_256, OF_TILES, 32, NONE)
PRODUCTS(registers_16, OF_REGISTERS, 2, NONE)
PRODUCTS(registers_32, OF_REGISTERS, 4, NONE)
PRODUCTS(registers_64, OF_REGISTERS, 8, NONE)
PRODUCTS(registers_128, OF_REGISTERS, 16, NONE)
PRODUCTS(rows_128, OF_ROWS, 16, NONE)

PRODUCTS(touches_sums, OF_TILES, 16, TOUCHES_SUMS)
PRODUCTS(touches_registers, OF_REGISTERS, 2, TOUCHES_REGISTERS)
PRODUCTS(ends_early, OF_TILES, 16, ENDS_EARLY)
PRODUCTS(one_more, OF_REGISTERS, 2, ONE_MORE)
PRODUCTS(other_shape, OF_REGISTERS, 4, OTHER_SHAPE)
PRODUCTS(no_warpgroup, OF_REGISTERS, 2, NO_WARPGROUP)
