// How weights are stored: as their file has them, decoded where they are used.
// A format splits a row into strips of 8 runs of depth inputs each; two runs
// are a piece, which one lane loads with one scale or one scale a run, and
// decodes a pair of weights at a time. Decoding gives the bits of quant.Row.
//
//   depth             inputs of a run
//   run(i)            where run i of 8 begins within its strip
//   load(w, row, p)   piece p of a row: runs 2(p%4) and 2(p%4)+1 of strip p/4;
//                     beyond the row all weights are zero
//   decode(piece, f)  weight f of both runs
//
// Loads are of single elements side by side, since files align tensors to an
// element at worst (GGUF's blocks to 2 bytes); the GPU's loads of four need no more.
#include <metal_stdlib>
using namespace metal;

#define UNROLL _Pragma("clang loop unroll(full)")

// Weights is a matrix [out, in]. Rows of floats may have any length; those of
// the other formats are whole groups or blocks.
struct Weights {
  device const uchar* data;
  device const ushort* scales; // of affine groups, bf16 [out, in/group]
  device const ushort* biases;
  uint in;
  uint group; // a power of two
  bool wide; // floats: in is a multiple of 8 and data of 4 bytes
};

// pieces_of is the number of pieces of a row.
template <typename F> inline uint pieces_of(uint in) { return (in + 2 * F::depth - 1) / (2 * F::depth); }

// piece_start is where run i (0 or 1) of a piece begins in its row.
template <typename F> inline uint piece_start(uint piece, uint i) { return piece / 4 * (8 * F::depth) + F::run(piece % 4 * 2 + i); }

inline uint4 four_words(device const uint* p) { return uint4(p[0], p[1], p[2], p[3]); }
inline uint pair_word(device const ushort* p) { return uint(p[0]) | uint(p[1]) << 16; }
inline uint4 four_pairs(device const ushort* p) { return uint4(pair_word(p), pair_word(p + 2), pair_word(p + 4), pair_word(p + 6)); }
inline float half_bits(ushort v) { return float(as_type<half>(v)); }
inline float bfloat_bits(ushort v) { return as_type<float>(uint(v) << 16); }
inline float byte_of(uint4 v, uint i) { return float(v[i / 4] >> (8 * (i % 4)) & 255u); }

struct F32Rows {
  static constant constexpr uint depth = 8;
  struct Piece {
    float4 a0, a1, b0, b1;
  };
  static uint run(uint i) { return 8 * i; }
  static float4 four(Weights w, device const float* p, uint k) {
    float4 v = float4(0.0f);
    if (w.wide) {
      if (k < w.in) v = float4(p[k], p[k + 1], p[k + 2], p[k + 3]);
      return v;
    }
    UNROLL for (uint i = 0; i < 4; i++)
      if (k + i < w.in) v[i] = p[k + i];
    return v;
  }
  static Piece load(Weights w, uint row, uint piece) {
    device const float* p = (device const float*)w.data + (ulong)row * w.in;
    const uint k = 16 * piece;
    Piece v;
    v.a0 = four(w, p, k), v.a1 = four(w, p, k + 4);
    v.b0 = four(w, p, k + 8), v.b1 = four(w, p, k + 12);
    return v;
  }
  static float2 decode(thread const Piece& v, uint f) {
    return f < 4 ? float2(v.a0[f % 4], v.b0[f % 4]) : float2(v.a1[f % 4], v.b1[f % 4]);
  }
};

// Halves are two a word, of f16 or bf16.
struct Halves {
  uint4 a, b;
};

inline uint4 load_halves(Weights w, device const ushort* p, uint k) {
  uint4 v = uint4(0u);
  if (w.wide) {
    if (k < w.in) v = four_words((device const uint*)(p + k));
    return v;
  }
  UNROLL for (uint i = 0; i < 8; i++)
    if (k + i < w.in) v[i / 2] |= uint(p[k + i]) << (16 * (i % 2));
  return v;
}

inline Halves load_halves_piece(Weights w, uint row, uint piece) {
  device const ushort* p = (device const ushort*)w.data + (ulong)row * w.in;
  Halves v;
  v.a = load_halves(w, p, 16 * piece), v.b = load_halves(w, p, 16 * piece + 8);
  return v;
}

inline ushort half_of(uint4 v, uint i) { return ushort(v[i / 2] >> (16 * (i % 2))); }

struct F16Rows {
  static constant constexpr uint depth = 8;
  typedef Halves Piece;
  static uint run(uint i) { return 8 * i; }
  static Piece load(Weights w, uint row, uint piece) { return load_halves_piece(w, row, piece); }
  static float2 decode(thread const Piece& v, uint f) { return float2(half_bits(half_of(v.a, f)), half_bits(half_of(v.b, f))); }
};

struct BF16Rows {
  static constant constexpr uint depth = 8;
  typedef Halves Piece;
  static uint run(uint i) { return 8 * i; }
  static Piece load(Weights w, uint row, uint piece) { return load_halves_piece(w, row, piece); }
  static float2 decode(thread const Piece& v, uint f) { return float2(bfloat_bits(half_of(v.a, f)), bfloat_bits(half_of(v.b, f))); }
};

// Affine groups hold 32 weights or more, so that one scale and one bias serve a piece.
struct Affine {
  uint4 q;
  float scale, bias;
};

inline Affine load_affine(Weights w, uint row, ulong word, uint k) {
  Affine v;
  v.q = four_words((device const uint*)w.data + word);
  const uint shift = ctz(w.group); // a division would cost as much as decoding
  const ulong at = (ulong)row * (w.in >> shift) + (k >> shift);
  v.scale = bfloat_bits(w.scales[at]), v.bias = bfloat_bits(w.biases[at]);
  return v;
}

struct Affine4 {
  static constant constexpr uint depth = 16;
  typedef Affine Piece;
  static uint run(uint i) { return 16 * i; }
  static Piece load(Weights w, uint row, uint piece) {
    if (32 * piece >= w.in) return Piece{uint4(0u), 0.0f, 0.0f};
    return load_affine(w, row, (ulong)row * (w.in / 8) + 4 * piece, 32 * piece);
  }
  static float2 decode(thread const Piece& v, uint f) {
    const uint shift = 4 * (f % 8);
    return float2(float(v.q[f / 8] >> shift & 15u), float(v.q[2 + f / 8] >> shift & 15u)) * v.scale + v.bias;
  }
};

struct Affine8 {
  static constant constexpr uint depth = 8;
  typedef Affine Piece;
  static uint run(uint i) { return 8 * i; }
  static Piece load(Weights w, uint row, uint piece) {
    if (16 * piece >= w.in) return Piece{uint4(0u), 0.0f, 0.0f};
    return load_affine(w, row, (ulong)row * (w.in / 4) + 4 * piece, 16 * piece);
  }
  static float2 decode(thread const Piece& v, uint f) { return float2(byte_of(v.q, f), byte_of(v.q, 8 + f)) * v.scale + v.bias; }
};

// Blocks of 32: f16 scale, 32 int8.
struct Q8_0 {
  static constant constexpr uint depth = 8;
  struct Piece {
    uint4 q;
    float scale;
  };
  static uint run(uint i) { return 8 * i; }
  static Piece load(Weights w, uint row, uint piece) {
    if (16 * piece >= w.in) return Piece{uint4(0u), 0.0f};
    device const ushort* block = (device const ushort*)w.data + ((ulong)row * (w.in / 32) + piece / 2) * 17;
    return Piece{four_pairs(block + 1 + piece % 2 * 8), half_bits(block[0])};
  }
  static float2 decode(thread const Piece& v, uint f) {
    return float2(float(as_type<char4>(v.q[f / 4])[f % 4]), float(as_type<char4>(v.q[2 + f / 4])[f % 4])) * v.scale;
  }
};

// Blocks of 32: f16 scale, 16 bytes with weights 0 to 15 in their low halves.
struct Q4_0 {
  static constant constexpr uint depth = 16;
  struct Piece {
    uint4 q;
    float scale;
  };
  static uint run(uint i) { return 16 * i; }
  static Piece load(Weights w, uint row, uint piece) {
    if (32 * piece >= w.in) return Piece{uint4(0u), 0.0f};
    device const ushort* block = (device const ushort*)w.data + ((ulong)row * (w.in / 32) + piece) * 9;
    return Piece{four_pairs(block + 1), half_bits(block[0])};
  }
  static float2 decode(thread const Piece& v, uint f) {
    const uint both = v.q[f / 4] >> (8 * (f % 4));
    return (float2(float(both & 15u), float(both >> 4 & 15u)) - 8.0f) * v.scale;
  }
};

// Blocks of 256: f16 scale and minimum, 12 bytes of 6-bit scales and minima of
// 8 sub-blocks, 4 · 32 bytes with sub-block 2j in the low halves and 2j+1 in the
// high ones. A piece is 16 of those bytes.
struct Q4_K {
  static constant constexpr uint depth = 16;
  struct Piece {
    uint4 q;
    float2 scale, low; // of the two sub-blocks
  };
  static uint run(uint i) { return i / 4 * 64 + i % 2 * 32 + i / 2 % 2 * 16; }
  static Piece load(Weights w, uint row, uint piece) {
    if (piece >= pieces_of<Q4_K>(w.in)) return Piece{uint4(0u), float2(0.0f), float2(0.0f)};
    device const ushort* block = (device const ushort*)w.data + ((ulong)row * (w.in / 256) + piece / 8) * 72;
    const uint j = piece % 8 / 2; // of the pairs of sub-blocks
    device const ushort* packed = block + 2;
    const uint first = packed[j], second = packed[j + 2];
    uint scales = first & 0x3f3fu, lows = second & 0x3f3fu;
    if (j >= 2) {
      scales = (second & 0x0f0fu) | (uint(packed[j - 2]) >> 2 & 0x3030u);
      lows = (second >> 4 & 0x0f0fu) | (first >> 2 & 0x3030u);
    }
    Piece v;
    v.q = four_pairs(block + 8 + j * 16 + piece % 2 * 8);
    v.scale = half_bits(block[0]) * float2(float(scales & 255u), float(scales >> 8));
    v.low = half_bits(block[1]) * float2(float(lows & 255u), float(lows >> 8));
    return v;
  }
  static float2 decode(thread const Piece& v, uint f) {
    const uint both = v.q[f / 4] >> (8 * (f % 4));
    return float2(float(both & 15u), float(both >> 4 & 15u)) * v.scale - v.low;
  }
};

// Blocks of 256, in two halves: 64 bytes of low 4 bits each, then 32 bytes of
// high 2 bits each, 16 int8 scales, f16 scale. A piece is 16 bytes of low bits.
struct Q6_K {
  static constant constexpr uint depth = 16;
  struct Piece {
    uint4 a, b; // numbers of the runs, in bytes
    float2 scale;
  };
  static uint run(uint i) { return i % 2 * 64 + i / 2 * 16; }
  static Piece load(Weights w, uint row, uint piece) {
    if (piece >= pieces_of<Q6_K>(w.in)) return Piece{uint4(0u), uint4(0u), float2(0.0f)};
    device const ushort* block = (device const ushort*)w.data + ((ulong)row * (w.in / 256) + piece / 8) * 105;
    const uint side = piece % 8 / 4, quarter = piece % 4;
    const uint4 low = four_pairs(block + side * 32 + quarter * 8);
    const uint4 high = four_pairs(block + 64 + side * 16 + quarter % 2 * 8) >> (quarter / 2 * 2);
    device const char* scales = (device const char*)(block + 96 + side * 4);
    Piece v;
    v.a = (low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4;
    v.b = (low >> 4 & 0x0f0f0f0fu) | (high & 0x30303030u);
    v.scale = half_bits(block[104]) * float2(float(scales[quarter]), float(scales[quarter + 4]));
    return v;
  }
  static float2 decode(thread const Piece& v, uint f) { return v.scale * (float2(byte_of(v.a, f), byte_of(v.b, f)) - 32.0f); }
};
