// Packed weights: what project*.cu multiplies and pack.cu makes.
//
// A strip is 16 outputs. It is cut along the inputs into granules of `inputs`
// (64 or 128) weights each, one after the other: numbers in the order in which
// a warp's lanes take them as A operands of mma m16n8k16, then their scales.
// Lane 4g+t holds rows g and g+8 of its strip, and of every 16 inputs those at
// 2t, 2t+1, 2t+8 and 2t+9: registers 0 to 3 of an operand are (g, 2t), (g+8, 2t),
// (g, 2t+8) and (g+8, 2t+8), each with the input after it in its high half.
//
// An operand holds number + offset exactly; a weight is scale·number + bias, of
// which scale and bias are applied to sums of `fold` inputs. They are numbers of
// bf16 where a type is narrow. Where a type rounds, kernels of few rows multiply
// weights that are rounded to bf16 instead (rounded.cuh), as those of prompts do.
#pragma once
#include "gpu.cuh"

// fma_bf16x2 is a·b+c of both halves, rounded once.
#ifdef __NVPTX__
DEV u32 fma_bf16x2(u32 a, u32 b, u32 c) { u32 r; asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); return r; }
#else
DEV u32 fma_bf16x2(u32 a, u32 b, u32 c) {
  return pack_bf16(fma(low_bf16(a), low_bf16(b), low_bf16(c)), fma(high_bf16(a), high_bf16(b), high_bf16(c)));
}
#endif

// merge is v & 0x000f000f | ones, in one instruction.
#ifdef __NVPTX__
DEV u32 merge(u32 v, u32 ones) { u32 r; asm("lop3.b32 %0, %1, 0x000f000f, %2, 0xea;" : "=r"(r) : "r"(v), "r"(ones)); return r; }
#else
DEV u32 merge(u32 v, u32 ones) { return (v & 0x000f000f) | ones; }
#endif

DEV float low_f16(u32 v) { return (float)__builtin_bit_cast(f16, (u16)v); }
DEV float high_f16(u32 v) { return (float)__builtin_bit_cast(f16, (u16)(v >> 16)); }

DEV u32 word(u32x4 v, u32 i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// 0x4300 is 128 in bf16, and its last 7 bits count ones.
constexpr u32 ones128 = 0x43004300;

// Scales and biases of a lane's two rows, for one fold.
struct Affine { float scale[2], bias[2]; };

// Nibbles holds 128 inputs a granule: one u32 a lane and 16 inputs, register i
// in bits 4i..4i+3 of each half. Operands are 128 + number.
struct Nibbles {
  static constexpr u32 inputs = 128, bytes = 1024;
  static constexpr i32 offset = 128;
  // load takes a lane's numbers of 64 inputs; decode gives the operand of the
  // 16 at 16·step.
  struct Numbers { u32x4 v; };
  static METHOD Numbers load(const u8 *granule, u32 block, u32 lane) { return {*(const u32x4 *)(granule + (block * 32 + lane) * 16)}; }
  static METHOD void decode(u32 (&a)[4], const Numbers &n, u32 step) {
    u32 w = word(n.v, step);
    UNROLL for (u32 i = 0; i < 4; i++) a[i] = merge(w >> 4 * i, ones128);
  }
  // tiny gives number · 2^-129 in rows 8 to 15, and a 16th of it in rows 0 to 7, for which
  // nothing has to be shifted: as bits of bf16, numbers under 256 are so many times 2^-133,
  // since from 128 on they are normal ones of the exponent that subnormal ones have.
  static METHOD void tiny(u32 (&a)[4], const Numbers &n, u32 step) {
    u32 w = word(n.v, step), v = w >> 8;
    a[0] = w & 0x000f000f, a[1] = w & 0x00f000f0, a[2] = v & 0x000f000f, a[3] = v & 0x00f000f0;
  }
};

// large makes of scales under 1/2 those of tiny numbers: times 2^129, in two steps as a
// number of bf16 has no such exponent. Both are exact.
DEV u32 large(u32 scale2) { return fma_bf16x2(fma_bf16x2(scale2, 0x60006000, 0x80008000), 0x5f805f80, 0x80008000); }
// sixteenth makes of biases those of rows 0 to 7.
DEV u32 sixteenth(u32 bias2) { return fma_bf16x2(bias2, 0x3d803d80, 0x80008000); }

// Bytes holds 64 inputs a granule: two u32 a lane and 16 inputs, registers 2i
// in the even bytes and 2i+1 in the odd ones of word i. Operands are the bytes
// less 128: signed numbers are stored with 128 added.
struct Bytes {
  static constexpr u32 inputs = 64, bytes = 1024;
  static constexpr i32 offset = -128;
  // 128 + (the low 7 bits) − (128 where the top bit is set, else 256)
  static METHOD u32 pair(u32 v) { return fma_bf16x2((v & 0x00800080) ^ 0x43804380, 0xbf80bf80, (v & 0x007f007f) | ones128); }
  struct Numbers { u32x4 v[2]; };
  static METHOD Numbers load(const u8 *granule, u32 block, u32 lane) {
    return {{*(const u32x4 *)(granule + lane * 16), *(const u32x4 *)(granule + 512 + lane * 16)}};
  }
  static METHOD void decode(u32 (&a)[4], const Numbers &n, u32 step) {
    UNROLL for (u32 i = 0; i < 2; i++) {
      u32 w = word(n.v[step / 2], step % 2 * 2 + i);
      a[i * 2] = pair(w);
      a[i * 2 + 1] = pair(w >> 8);
    }
  }
};

// SixBits holds 64 inputs a granule: low 4 bits as Nibbles, then two words a
// lane with the high 2 bits, each of 32 inputs: register i of the first 16 at
// bits 2i, of the second at 2i+8, of each half. Operands are the 6 bits less 32.
struct SixBits {
  static constexpr u32 inputs = 64, bytes = 768;
  static constexpr i32 offset = 0;
  struct Numbers { u32x4 low; u32x2 high; };
  static METHOD Numbers load(const u8 *granule, u32 block, u32 lane) {
    return {*(const u32x4 *)(granule + lane * 16), *(const u32x2 *)(granule + 512 + lane * 8)};
  }
  static METHOD void decode(u32 (&a)[4], const Numbers &n, u32 step) {
    u32 w = word(n.low, step), high = step < 2 ? n.high.x : n.high.y;
    UNROLL for (u32 i = 0; i < 4; i++) {
      u32 at = step % 2 * 8 + 2 * i; // to bits 4 and 5
      u32 top = at < 4 ? high << (4 - at) : high >> (at - 4);
      u32 number = merge(w >> 4 * i, ones128) | (top & 0x00300030);
      a[i] = fma_bf16x2(number, 0x3f803f80, 0xc320c320); // − 160
    }
  }
};

// AffineGroups are scales and biases in bf16 of groups of 32, 64 or 128: for
// each group and g, the words of rows g and g+8. shift is log2(group / fold).
template <class N, u32 foldInputs> struct AffineGroups : N {
  static constexpr u32 fold = foldInputs;
  static constexpr bool sums = true, narrow = true, rounds = N::offset == 128;
  // words has scale and bias of a row in the halves of each.
  static METHOD u32x2 words(const u8 *granule, u32 index, u32 shift, u32 g) { return *(const u32x2 *)(granule + N::bytes + (index >> shift) * 64 + g * 8); }
  static METHOD Affine scales(const u8 *granule, u32 index, u32 shift, u32 g) {
    u32x2 v = words(granule, index, shift, g);
    Affine r;
    u32 w[2] = {v.x, v.y};
    UNROLL for (u32 i = 0; i < 2; i++) {
      r.scale[i] = low_bf16(w[i]);
      r.bias[i] = high_bf16(w[i]);
    }
    return r;
  }
};

// Q4_0: an f16 scale of 32 numbers less 8.
struct PackedQ4_0 : Nibbles {
  static constexpr u32 fold = 32;
  static constexpr bool sums = true, narrow = false, rounds = false;
  static METHOD Affine scales(const u8 *granule, u32 index, u32 shift, u32 g) {
    u32 v = *(const u32 *)(granule + bytes + index * 32 + g * 4);
    float a = low_f16(v), b = high_f16(v);
    return {{a, b}, {-8 * a, -8 * b}};
  }
};

// Q8_0: an f16 scale of 32 signed numbers.
struct PackedQ8_0 : Bytes {
  static constexpr u32 fold = 32;
  static constexpr i32 offset = 0;
  static constexpr bool sums = false, narrow = false, rounds = false;
  static METHOD Affine scales(const u8 *granule, u32 index, u32 shift, u32 g) {
    u32 v = *(const u32 *)(granule + bytes + index * 32 + g * 4);
    return {{low_f16(v), high_f16(v)}, {}};
  }
};

// Q4_K: for each 32 inputs and g, 6-bit scale and minimum of rows g and g+8 in
// a byte each; then d and the minima's d in f16, rows g and g+8.
struct PackedQ4_K : Nibbles {
  static constexpr u32 fold = 32;
  static constexpr bool sums = true, narrow = false, rounds = false;
  static METHOD Affine scales(const u8 *granule, u32 index, u32 shift, u32 g) {
    u32 v = *(const u32 *)(granule + bytes + index * 32 + g * 4);
    u32x2 d = *(const u32x2 *)(granule + bytes + 128 + g * 8);
    u32 w[2] = {d.x, d.y};
    Affine r;
    UNROLL for (u32 i = 0; i < 2; i++) {
      u32 both = v >> 16 * i;
      r.scale[i] = low_f16(w[i]) * (float)(both & 255);
      r.bias[i] = -(high_f16(w[i]) * (float)(both >> 8 & 255));
    }
    return r;
  }
};

// Q6_K: for each 16 inputs and g, signed scales of rows g and g+8; then their d
// in f16.
struct PackedQ6_K : SixBits {
  static constexpr u32 fold = 16;
  static constexpr bool sums = false, narrow = false, rounds = false;
  static METHOD Affine scales(const u8 *granule, u32 index, u32 shift, u32 g) {
    u32 v = *(const u16 *)(granule + bytes + index * 16 + g * 2);
    u32 d = *(const u32 *)(granule + bytes + 64 + g * 4);
    return {{low_f16(d) * (float)(i8)v, high_f16(d) * (float)(i8)(v >> 8)}, {}};
  }
};
