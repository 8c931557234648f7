// Experts' projections of few rows on tensor cores: each expert by the rows that
// chose it (route.cu has listed them).
//
// As in stream.cuh the weights are the A operand (a strip: 16 outputs), rows the
// columns of B, 8 a tile, so a row's bits do not depend on the rows beside it. Warps
// split the inputs of a strip into parts, by shape alone, each with a ring of weights
// of its own that needs no barrier; the parts are added in their order. Inputs go
// from the caches to registers: an expert has few rows, and a block uses them once.
#pragma once
#include "gemm.cuh"
#include "strips.cuh"

// Slot is an expert that has rows.
struct Slot { u32 expert, first, count; };

// Mixture is what a launch computes; the same for every block.
struct Mixture {
  const u64 *weights[2]; // addresses of each expert's matrices: gate and up, or down
  const u16 *x;          // [rows, in], or of pairs [pairs, in]
  u16 *bf16;             // [pairs, out]
  float *f32;            // likewise
  const u32 *tables, *pairs;
  u32 in, out, granule, shift, stages;
  u32 parts; // of the inputs
  u32 k;     // pairs of a row of x: experts of a row, the shared one among them, or 1
};

DEV Slot slot_at(const Mixture &p, u32 i) {
  const u32x4 v = *(const u32x4 *)(p.tables + 4 + i * 4);
  return {v.x, v.y, v.z};
}

// Experts multiplies strips of G matrices by NT tiles of rows in a warp.
template <class W, u32 G> struct Experts {
  static constexpr bool packed = W::bytes != Rows::bytes;
  static constexpr u32 perGranule = W::inputs / 64;

  const Mixture &p;
  u32 warp, lane, g, t;
  u32 begin, end; // this warp's granules
  u8 *ring;       // this warp's stages, of G granules each
  Shared ringAt;

  METHOD u32 depth() const { return (p.in + W::inputs - 1) / W::inputs; }
  METHOD u32 stageBytes() const { return G * p.granule; }

  // aim points source at a strip of an expert's matrices.
  METHOD void aim(const u8 *(&source)[G], u32 expert, u32 strip) const {
    UNROLL for (u32 j = 0; j < G; j++) source[j] = strip_of((const u8 *)p.weights[j][expert], strip);
  }
  METHOD const u8 *strip_of(const u8 *matrix, u32 strip) const {
    if constexpr (packed) return matrix + (u64)strip * depth() * p.granule;
    else return matrix + (u64)strip * 16 * p.in * 2;
  }

  // load starts the copies of a granule of each strip to a stage.
  METHOD void load(const u8 *const (&source)[G], u32 strip, u32 granule, u32 stage) const {
    const Shared to = ringAt + stage * stageBytes();
    UNROLL for (u32 j = 0; j < G; j++) {
      if constexpr (packed) {
        const u8 *from = source[j] + (u64)granule * p.granule;
        for (u32 c = lane * 16; c < p.granule; c += 512) copy_to(to + j * p.granule + c, from + c, true);
      } else {
        const u32 k = granule * 64 + lane % 8 * 8;
        UNROLL for (u32 i = 0; i < 4; i++) { // 16-byte chunks are permuted by the row
          const u32 row = i * 4 + lane / 8;
          const bool here = k < p.in && strip * 16 + row < p.out;
          copy_to(to + j * 2048 + row * 128 + ((lane % 8 ^ row % 8) << 4), here ? source[j] + ((u64)row * p.in + k) * 2 : source[j], here);
        }
      }
    }
  }

  // Inputs are the B operands of 64 inputs on their way.
  template <u32 NT> struct Inputs { u32 low[NT][4], high[NT][4]; };

  // fetch loads 64 inputs of each row of this lane: the first of its 16, and the second eight.
  template <u32 NT> METHOD void fetch(Inputs<NT> &v, const u16 *const (&rows)[NT], u32 unit) const {
    const u32 k = unit * 64 + t * 16;
    UNROLL for (u32 nt = 0; nt < NT; nt++) {
      u32x4 a = {}, b = {};
      if (rows[nt] && k < p.in) a = *(const u32x4 *)(rows[nt] + k);
      if (rows[nt] && k + 8 < p.in) b = *(const u32x4 *)(rows[nt] + k + 8);
      v.low[nt][0] = a.x, v.low[nt][1] = a.y, v.low[nt][2] = a.z, v.low[nt][3] = a.w;
      v.high[nt][0] = b.x, v.high[nt][1] = b.y, v.high[nt][2] = b.z, v.high[nt][3] = b.w;
    }
  }

  // multiply adds the products of 64 inputs, those of a granule from 64·block on.
  template <u32 NT> METHOD void multiply(float (&total)[G][NT][4], const Inputs<NT> &b, u32 stage, u32 block) const {
    const u8 *a = ring + stage * stageBytes();
    if constexpr (!packed) {
      const Shared at = ringAt + stage * stageBytes();
      UNROLL for (u32 j = 0; j < G; j++)
        UNROLL for (u32 k = 0; k < 4; k++) {
          u32 w[4];
          const u32 row = lane % 16, chunk = k * 2 + lane / 16;
          load_matrix_at(w, at + j * 2048 + row * 128 + ((chunk ^ row % 8) << 4));
          UNROLL for (u32 nt = 0; nt < NT; nt++) mma_bf16(total[j][nt], w, {b.low[nt][k], b.high[nt][k]});
        }
    } else {
      constexpr u32 folds = 64 / W::fold, steps = W::fold / 16;
      // Sums of x over a fold: products with ones, in every row of a result.
      f32x2 sum[folds][NT];
      if constexpr (W::sums) {
        UNROLL for (u32 f = 0; f < folds; f++)
          UNROLL for (u32 nt = 0; nt < NT; nt++) {
            float acc[4] = {};
            u32 one[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
            UNROLL for (u32 k = f * steps; k < f * steps + steps; k++) mma_bf16(acc, one, {b.low[nt][k], b.high[nt][k]});
            sum[f][nt] = {acc[0], acc[1]};
          }
      }
      UNROLL for (u32 j = 0; j < G; j++) {
        const u8 *granule = a + j * p.granule;
        typename W::Numbers numbers = W::load(granule, block, lane);
        UNROLL for (u32 f = 0; f < folds; f++) {
          Affine scale = W::scales(granule, block * folds + f, p.shift, g);
          UNROLL for (u32 i = 0; i < 2; i++) scale.bias[i] = fma(scale.scale[i], -(float)W::offset, scale.bias[i]);
          float acc[NT][4] = {};
          UNROLL for (u32 k = f * steps; k < f * steps + steps; k++) {
            u32 w[4];
            W::decode(w, numbers, k);
            UNROLL for (u32 nt = 0; nt < NT; nt++) mma_bf16(acc[nt], w, {b.low[nt][k], b.high[nt][k]});
          }
          UNROLL for (u32 nt = 0; nt < NT; nt++)
            UNROLL for (u32 i = 0; i < 4; i++) {
              float &to = total[j][nt][i];
              to = fma(scale.scale[i / 2], acc[nt][i], to);
              if constexpr (W::sums) to = fma(scale.bias[i / 2], i % 2 ? sum[f][nt].y : sum[f][nt].x, to);
            }
        }
      }
    }
  }

  // find gives this lane's rows of the inputs, null where there are none.
  template <u32 NT> METHOD void find(const u16 *(&rows)[NT], const Slot &s, u32 chunk) const {
    UNROLL for (u32 nt = 0; nt < NT; nt++) {
      const u32 r = chunk + nt * 8 + g;
      rows[nt] = r < s.count ? p.x + (u64)(p.pairs[s.first + r] / p.k) * p.in : nullptr;
    }
  }

  // Operands of 64 inputs: lanes of a quad exchange what each has loaded.
  template <u32 NT> METHOD Inputs<NT> operands(const Inputs<NT> &raw) const {
    Inputs<NT> b = raw;
    UNROLL for (u32 nt = 0; nt < NT; nt++) {
      transpose4(b.low[nt], lane);
      transpose4(b.high[nt], lane);
    }
    return b;
  }
};

template <class W, u32 G> DEV Experts<W, G> experts_of(const Mixture &p, u8 *shared) {
  Experts<W, G> e{p, tid() / 32, tid() % 32};
  e.g = e.lane / 4, e.t = e.lane % 4;
  e.ring = shared + e.warp * p.stages * e.stageBytes();
  e.ringAt = shared_at(e.ring);
  const u32 part = e.warp % p.parts, depth = e.depth();
  e.begin = part * depth / p.parts;
  e.end = (part + 1) * depth / p.parts;
  return e;
}

constexpr u32 slotWarps = 8;

// finish adds up the parts of a tile of rows and stores them; sums are [warps][G][8 rows][16].
template <class W, u32 G, u32 NT> DEV void finish(const Experts<W, G> &e, const Slot &s, float (&total)[G][NT][4], u32 chunk, u32 first, float *sums) {
  const Mixture &p = e.p;
  const u32 groups = slotWarps / p.parts;
  UNROLL for (u32 nt = 0; nt < NT; nt++) {
    if (chunk + nt * 8 >= s.count) break;
    UNROLL for (u32 j = 0; j < G; j++)
      UNROLL for (u32 i = 0; i < 4; i++) sums[((e.warp * G + j) * 8 + e.t * 2 + i % 2) * 16 + e.g + i / 2 * 8] = total[j][nt][i];
    sync();
    for (u32 item = tid(); item < groups * 128; item += slotWarps * 32) {
      const u32 group = item / 128, row = chunk + nt * 8 + item % 128 / 16, m = (first + group) * 16 + item % 16;
      if (row >= s.count || m >= p.out) continue;
      float v[G];
      UNROLL for (u32 j = 0; j < G; j++) {
        const float *from = sums + (group * p.parts * G + j) * 128 + item % 128;
        v[j] = from[0];
        for (u32 i = 1; i < p.parts; i++) v[j] += from[i * G * 128];
      }
      const u64 at = (u64)p.pairs[s.first + row] * p.out + m;
      if constexpr (G == 2) p.bf16[at] = (u16)pack_bf16(silu(v[0]) * v[1], 0);
      else p.f32[at] = v[0];
    }
    sync();
  }
}

// tiles multiplies NT tiles of a slot's rows, from chunk on.
template <class W, u32 G, u32 NT> DEV void tiles(const Experts<W, G> &e, const Slot &s, const u8 *const (&source)[G], u32 strip, bool there, u32 chunk, u32 first, float *sums) {
  const Mixture &p = e.p;
  const u32 n = there ? e.end - e.begin : 0;
  _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) {
    if (i < n) e.load(source, strip, e.begin + i, i);
    copy_commit();
  }
  using Inputs = typename Experts<W, G>::template Inputs<NT>;
  constexpr u32 per = Experts<W, G>::perGranule;
  const u16 *rows[NT];
  e.template find<NT>(rows, s, chunk);
  Inputs next;
  e.template fetch<NT>(next, rows, e.begin * per);
  float total[G][NT][4] = {};
  u32 stage = 0;
  _Pragma("nounroll") for (u32 i = 0; i < n; i++) {
    wait_groups(p.stages - 1);
    sync_warp();
    UNROLL for (u32 block = 0; block < per; block++) {
      const Inputs b = e.template operands<NT>(next);
      const u32 unit = (e.begin + i) * per + block + 1;
      if (unit < e.end * per) e.template fetch<NT>(next, rows, unit);
      e.template multiply<NT>(total, b, stage, block);
    }
    sync_warp();
    if (i + p.stages < n) e.load(source, strip, e.begin + i + p.stages, stage);
    copy_commit();
    stage = stage + 1 == p.stages ? 0 : stage + 1;
  }
  finish<W, G, NT>(e, s, total, chunk, first, sums);
}

// slots is a block an expert and some strips: G is 2 for gate and up, whose products
// are joined to silu(gate)·up in bf16, 1 for down. It takes 8 rows at a time, or up to 32
// where `many`: registers for those would let fewer blocks of few rows be at work.
template <class W, u32 G, bool many> DEV void slots(const Mixture &p, u8 *shared) {
  launch_dependents();
  const Experts<W, G> e = experts_of<W, G>(p, shared);
  float *sums = (float *)(shared + slotWarps * p.stages * e.stageBytes());
  const u32 first = bid_y() * (slotWarps / p.parts), strip = first + e.warp / p.parts;
  const bool there = strip < (p.out + 15) / 16;
  dependency_wait();
  const Slot s = slot_at(p, bid()); // beside the number of them: it may be there or not
  if (bid() >= p.tables[0]) return;
  const u8 *source[G];
  e.aim(source, s.expert, there ? strip : 0);
  if constexpr (!many) {
    _Pragma("nounroll") for (u32 chunk = 0; chunk < s.count; chunk += 8) tiles<W, G, 1>(e, s, source, strip, there, chunk, first, sums);
    return;
  }
  _Pragma("nounroll") for (u32 chunk = 0; chunk < s.count; chunk += 32) {
    const u32 rest = s.count - chunk;
    if (rest <= 8) tiles<W, G, 1>(e, s, source, strip, there, chunk, first, sums);
    else tiles<W, G, many ? 4 : 1>(e, s, source, strip, there, chunk, first, sums);
  }
}

constexpr u32 joinWarps = 16;

// Listed is a slot as a block has it in shared memory, with where its expert's strip lies:
// a warp takes many in turn, and would wait for each of them.
struct alignas(16) Listed { const u8 *strip; u32 first, count; };

// Join is down and the sum of up to 32 rows in one: a block makes 16 outputs by all
// experts. made is [pairs][parts][16].
template <class W> struct Join {
  const Experts<W, 1> &e;
  float *made;
  const Listed *slots;
  const u32 *pairs;
  u32 strip, units; // expert and part
  // What is loaded next.
  u32 unit, granule;
  const u8 *source[1];

  METHOD void aim() {
    granule = e.begin;
    if (unit < units) source[0] = slots[unit / e.p.parts].strip;
  }

  METHOD void loadNext(u32 stage) {
    if (unit < units) {
      e.load(source, strip, granule, stage);
      if (++granule == e.end) {
        unit += joinWarps;
        aim();
      }
    }
    copy_commit();
  }

  template <u32 NT> METHOD void work(u32 index, u32 &stage) {
    const Mixture &p = e.p;
    constexpr u32 per = Experts<W, 1>::perGranule;
    const Listed s = slots[index / p.parts];
    const u16 *rows[NT];
    UNROLL for (u32 nt = 0; nt < NT; nt++) rows[nt] = nt * 8 + e.g < s.count ? p.x + (u64)pairs[s.first + nt * 8 + e.g] * p.in : nullptr;
    typename Experts<W, 1>::template Inputs<NT> next;
    e.template fetch<NT>(next, rows, e.begin * per);
    float total[1][NT][4] = {};
    _Pragma("nounroll") for (u32 i = e.begin; i < e.end; i++) {
      wait_groups(p.stages - 1);
      sync_warp();
      UNROLL for (u32 block = 0; block < per; block++) {
        const auto b = e.template operands<NT>(next);
        const u32 unit = i * per + block + 1;
        if (unit < e.end * per) e.template fetch<NT>(next, rows, unit);
        e.template multiply<NT>(total, b, stage, block);
      }
      sync_warp();
      loadNext(stage);
      stage = stage + 1 == p.stages ? 0 : stage + 1;
    }
    UNROLL for (u32 nt = 0; nt < NT; nt++)
      UNROLL for (u32 i = 0; i < 2; i++) {
        const u32 r = nt * 8 + e.t * 2 + i;
        if (r >= s.count) continue;
        float *to = made + (pairs[s.first + r] * p.parts + index % p.parts) * 16 + e.g;
        to[0] = total[0][nt][i];
        to[8] = total[0][nt][i + 2];
      }
  }
};

// A row takes `each` experts: those that it chose and, where it is listed, the shared one.
template <class W>
DEV void join(const Mixture &p, u8 *shared, const float *with, const float *shares, const float *routing, u32 chosen, u32 each, u32 rows, u32 bucket, u32 most) {
  const Experts<W, 1> e = experts_of<W, 1>(p, shared);
  float *made = (float *)(shared + joinWarps * p.stages * e.stageBytes());
  Listed *slots = (Listed *)(made + bucket * each * p.parts * 16);
  u32 *pairs = (u32 *)(slots + most);
  const u32 n = p.tables[0];
  for (u32 i = tid(); i < most; i += joinWarps * 32) { // beside the number of them: it may be there or not
    const Slot s = slot_at(p, i);
    if (i < n) slots[i] = {e.strip_of((const u8 *)p.weights[0][s.expert], bid()), s.first, s.count};
  }
  for (u32 i = tid(); i < rows * each; i += joinWarps * 32) pairs[i] = p.pairs[i];
  sync();
  Join<W> y{e, made, slots, pairs, bid(), n * p.parts};
  y.unit = e.warp;
  y.aim();
  _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) y.loadNext(i);
  // What the sums begin with, on its way meanwhile.
  const u32 row = tid() / 16, m = bid() * 16 + tid() % 16;
  const bool mine = row < rows && m < p.out;
  const u64 at = (u64)row * p.out + m;
  float sum = mine ? p.f32[at] : 0;
  const float other = mine && with ? with[at] : 0, share = mine && shares ? shares[row] : 0;
  u32 stage = 0;
  _Pragma("nounroll") for (u32 index = e.warp; index < y.units; index += joinWarps) {
    const u32 count = slots[index / p.parts].count;
    if (count <= 8) y.template work<1>(index, stage);
    else if (count <= 16) y.template work<2>(index, stage);
    else y.template work<4>(index, stage);
  }
  sync();
  if (!mine) return;
  const float *weights = routing + row * 2 * chosen + chosen;
  for (u32 i = 0; i < each; i++) {
    const float *from = y.made + (row * each + i) * p.parts * 16 + tid() % 16;
    float v = from[0];
    for (u32 part = 1; part < p.parts; part++) v += from[part * 16];
    sum = fma(i < chosen ? weights[i] : share, v, sum);
  }
  if (with) sum = fma(share, other, sum);
  p.f32[at] = sum;
}

#define GATED(kernel, W, many)                                                                                                                      \
  KERNEL(slotWarps * 32) void kernel(const u64 *gate, const u64 *up, const u16 *x, u16 *dst, const u32 *tables, const u32 *pairs, u32 in, \
                                                   u32 out, u32 granule, u32 shift, u32 stages, u32 parts, u32 k) {                                  \
    DYNAMIC_SHARED(kernel, shared);                                                                                                     \
    const Mixture p{{gate, up}, x, dst, nullptr, tables, pairs, in, out, granule, shift, stages, parts, k};                                          \
    slots<W, 2, many>(p, shared);                                                                                                                           \
  }                                                                                                                                                   \
  REGISTER(kernel)

#define EXPERTS(name, W)                                                                                                                               \
  GATED(experts_gated_##name, W, false)                                                                                                                 \
  GATED(experts_gated_many_##name, W, true)                                                                                                             \
  KERNEL(slotWarps * 32) void experts_down_##name(const u64 *down, const u16 *x, float *dst, const u32 *tables, const u32 *pairs, u32 in, u32 out,    \
                                                  u32 granule, u32 shift, u32 stages, u32 parts) {                                                    \
    DYNAMIC_SHARED(experts_down_##name, shared);                                                                                                      \
    const Mixture p{{down, down}, x, nullptr, dst, tables, pairs, in, out, granule, shift, stages, parts, 1};                                         \
    slots<W, 1, true>(p, shared);                                                                                                                           \
  }                                                                                                                                                   \
  REGISTER(experts_down_##name)                                                                                                                       \
  KERNEL(joinWarps * 32) void experts_join_##name(const u64 *down, const u16 *x, float *dst, const u32 *tables, const u32 *pairs, u32 in, u32 out,    \
                                                  u32 granule, u32 shift, u32 stages, u32 parts, const float *with, const float *shares,              \
                                                  const float *routing, u32 chosen, u32 each, const Step *step, u32 bucket, u32 most) {               \
    DYNAMIC_SHARED(experts_join_##name, shared);                                                                                                      \
    launch_dependents();                                                                                                                              \
    dependency_wait();                                                                                                                                \
    const Mixture p{{down, down}, x, nullptr, dst, tables, pairs, in, out, granule, shift, stages, parts, 1};                                         \
    join<W>(p, shared, with, shares, routing, chosen, each, step->rows, bucket, most);                                                                                    \
  }                                                                                                                                                   \
  REGISTER(experts_join_##name)
