// Experts' projections of few rows on tensor cores: each expert by the rows that
// chose it (route.cu has listed them).
//
// As in stream.cuh the weights are the A operand (a strip: 16 outputs), rows the
// columns of B, 8 a tile, so a row's bits do not depend on the rows beside it. Warps
// split the inputs of a strip into parts, by shape alone, each with a ring of its own
// that needs no barrier, of weights and of the rows that are multiplied by them; the
// parts are added in their order. An expert has few rows: where it has more than a ring
// holds, its weights are read again, from L2.
#pragma once
#include "choose.cuh"
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

// Inputs are the B operands of 64 inputs: of each 16 the first eight, and the second.
struct Inputs { u32 low[4], high[4]; };

// multiply_packed adds the products of 64 inputs by G granules, which lie one behind the
// other: those of each from 64·block on.
template <class W, u32 G> DEV void multiply_packed(float (&total)[G][4], const Inputs &b, const u8 *a, u32 bytes, u32 shift, u32 block, u32 lane) {
  if constexpr (W::rounds) {
    UNROLL for (u32 j = 0; j < G; j++) {
      u32 w[4][4];
      rounded<W>(w, a + j * bytes, block, shift, lane);
      UNROLL for (u32 k = 0; k < 4; k++) mma_bf16(total[j], w[k], {b.low[k], b.high[k]});
    }
    return;
  }
  constexpr u32 folds = 64 / W::fold, steps = W::fold / 16;
  // Sums of x over a fold: products with ones, in every row of a result.
  f32x2 sum[folds];
  if constexpr (W::sums) {
    UNROLL for (u32 f = 0; f < folds; f++) {
      float acc[4] = {};
      u32 one[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
      UNROLL for (u32 k = f * steps; k < f * steps + steps; k++) mma_bf16(acc, one, {b.low[k], b.high[k]});
      sum[f] = {acc[0], acc[1]};
    }
  }
  UNROLL for (u32 j = 0; j < G; j++) {
    const u8 *granule = a + j * bytes;
    typename W::Numbers numbers = W::load(granule, block, lane);
    UNROLL for (u32 f = 0; f < folds; f++) {
      Affine scale = W::scales(granule, block * folds + f, shift, lane / 4);
      UNROLL for (u32 i = 0; i < 2; i++) scale.bias[i] = fma(scale.scale[i], -(float)W::offset, scale.bias[i]);
      float acc[4] = {};
      UNROLL for (u32 k = f * steps; k < f * steps + steps; k++) {
        u32 w[4];
        W::decode(w, numbers, k);
        mma_bf16(acc, w, {b.low[k], b.high[k]});
      }
      UNROLL for (u32 i = 0; i < 4; i++) {
        float &to = total[j][i];
        to = fma(scale.scale[i / 2], acc[i], to);
        if constexpr (W::sums) to = fma(scale.bias[i / 2], i % 2 ? sum[f].y : sum[f].x, to);
      }
    }
  }
}

// Experts multiplies strips of G matrices by up to 8 rows in a warp.
template <class W, u32 G> struct Experts {
  static constexpr bool packed = W::bytes != Rows::bytes;
  static constexpr u32 perGranule = W::inputs / 64, lineBytes = W::inputs * 2;

  const Mixture &p;
  u32 warp, lane, g, t;
  u32 begin, end; // this warp's granules
  u8 *ring;       // this warp's stages, of G granules each, and behind them `held` rows of its inputs
  Shared ringAt;
  u32 held; // 1 or 8

  METHOD u32 depth() const { return (p.in + W::inputs - 1) / W::inputs; }
  METHOD u32 stageBytes() const { return G * p.granule + held * lineBytes; }

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

  // bring starts the copies of a granule's inputs of n rows to a stage; lane i has the
  // number of the i-th. 16-byte chunks are permuted by the row.
  METHOD void bring(u32 number, u32 n, u32 granule, u32 stage) const {
    constexpr u32 chunks = W::inputs / 8, lines = 32 / chunks;
    const Shared to = ringAt + stage * stageBytes() + G * p.granule;
    const u32 c = lane % chunks, k = granule * W::inputs + c * 8;
    _Pragma("nounroll") for (u32 i = 0; i < n; i += lines) {
      const u32 r = i + lane / chunks, row = shfl(number, (int)r);
      if (r < n) copy_to(to + r * lineBytes + ((c ^ r % 8) << 4), k < p.in ? p.x + (u64)row * p.in + k : p.x, k < p.in);
    }
  }

  // brought are those of a stage's rows; of rows that are not there, any numbers.
  METHOD Inputs brought(u32 stage, u32 block) const {
    const u32 row = lane % 8 & (held - 1);
    const Shared at = ringAt + stage * stageBytes() + G * p.granule + row * lineBytes;
    Inputs b;
    UNROLL for (u32 i = 0; i < 2; i++) {
      u32 v[4];
      load_matrix_at(v, at + (((block * 8 + i * 4 + lane / 8) ^ row) << 4));
      b.low[i * 2] = v[0], b.high[i * 2] = v[1], b.low[i * 2 + 1] = v[2], b.high[i * 2 + 1] = v[3];
    }
    return b;
  }

  // multiply adds the products of 64 inputs, those of a granule from 64·block on.
  METHOD void multiply(float (&total)[G][4], const Inputs &b, u32 stage, u32 block) const {
    if constexpr (packed) {
      multiply_packed<W>(total, b, ring + stage * stageBytes(), p.granule, p.shift, block, lane);
    } else {
      const Shared at = ringAt + stage * stageBytes();
      UNROLL for (u32 j = 0; j < G; j++)
        UNROLL for (u32 k = 0; k < 4; k++) {
          u32 w[4];
          const u32 row = lane % 16, chunk = k * 2 + lane / 16;
          load_matrix_at(w, at + j * 2048 + row * 128 + ((chunk ^ row % 8) << 4));
          mma_bf16(total[j], w, {b.low[k], b.high[k]});
        }
    }
  }

  // multiply adds the products of a stage.
  METHOD void multiply(float (&total)[G][4], u32 stage) const {
    UNROLL for (u32 block = 0; block < perGranule; block++) multiply(total, brought(stage, block), stage, block);
  }

  // run adds the products of the n granules of this warp by some rows, whose numbers the
  // lanes have.
  METHOD void run(float (&total)[G][4], const u8 *const (&source)[G], u32 strip, u32 n, u32 number, u32 rows) const {
    _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) {
      if (i < n) {
        load(source, strip, begin + i, i);
        bring(number, rows, begin + i, i);
      }
      copy_commit();
    }
    u32 stage = 0;
    _Pragma("nounroll") for (u32 i = 0; i < n; i++) {
      wait_groups(p.stages - 1);
      sync_warp();
      multiply(total, stage);
      sync_warp();
      if (i + p.stages < n) {
        load(source, strip, begin + i + p.stages, stage);
        bring(number, rows, begin + i + p.stages, stage);
      }
      copy_commit();
      stage = stage + 1 == p.stages ? 0 : stage + 1;
    }
  }
};

template <class W, u32 G> DEV Experts<W, G> experts_of(const Mixture &p, u8 *shared, u32 held) {
  Experts<W, G> e{p, tid() / 32, tid() % 32};
  e.held = held;
  e.g = e.lane / 4, e.t = e.lane % 4;
  e.ring = shared + e.warp * p.stages * e.stageBytes();
  e.ringAt = shared_at(e.ring);
  const u32 part = e.warp % p.parts, depth = e.depth();
  e.begin = part * depth / p.parts;
  e.end = (part + 1) * depth / p.parts;
  for (u32 i = 0; i < p.stages; i++) allow_unwritten(e.ring + i * e.stageBytes() + G * p.granule, held * e.lineBytes);
  return e;
}

// touch brings the addresses of n matrices to L2: they never change.
DEV void touch(const u64 *list, u32 n) {
  for (u32 i = tid() * 16; i < n; i += bdim() * 16) prefetch_l2(list + i);
}

constexpr u32 slotWarps = 8;

// finish adds up the parts of up to 8 rows of a slot and stores them, a row a sixteen of
// threads, whose pair is given. Each warp leaves its sums, [G][8 rows][16], in its ring,
// which it is done with.
template <class W, u32 G> DEV void finish(const Experts<W, G> &e, float (&total)[G][4], u32 pair, u32 rows, u32 first, const float *rings) {
  const Mixture &p = e.p;
  const u32 groups = bdim() / 32 / p.parts, line = p.stages * e.stageBytes() / 4, row = tid() % 128 / 16;
  float *own = (float *)e.ring;
  UNROLL for (u32 j = 0; j < G; j++)
    UNROLL for (u32 i = 0; i < 4; i++) own[(j * 8 + e.t * 2 + i % 2) * 16 + e.g + i / 2 * 8] = total[j][i];
  sync();
  for (u32 item = tid(); item < groups * 128; item += bdim()) {
    const u32 group = item / 128, m = (first + group) * 16 + item % 16;
    if (row >= rows || m >= p.out) continue;
    float v[G];
    UNROLL for (u32 j = 0; j < G; j++) {
      const float *from = rings + group * p.parts * line + j * 128 + item % 128;
      v[j] = from[0];
      for (u32 i = 1; i < p.parts; i++) v[j] += from[i * line];
      v[j] = whole_sum<W>(v[j], item % 16 / 8);
    }
    const u64 at = (u64)pair * p.out + m;
    if constexpr (G == 2) p.bf16[at] = (u16)pack_bf16(silu(v[0]) * v[1], 0);
    else p.f32[at] = v[0];
  }
}

// slots is a block some strips and an expert: G is 2 for gate and up, whose products are
// joined to silu(gate)·up in bf16, 1 for down. Slots that are not there come last: of several
// rows most places of a grid are theirs.
template <class W, u32 G> DEV void slots(const Mixture &p, u8 *shared, u32 held, u32 listed) {
  UNROLL for (u32 j = 0; j < G; j++) touch(p.weights[j], listed);
  const Experts<W, G> e = experts_of<W, G>(p, shared, held);
  const u32 first = bid() * (slotWarps / p.parts), strip = first + e.warp / p.parts, slot = bid_y();
  const bool there = strip < (p.out + 15) / 16;
  dependency_wait();
  launch_dependents(); // only now: experts_join then knows that the router is done
  const Slot s = slot_at(p, slot); // beside the number of them: it may be there or not
  if (slot >= p.tables[0]) return;
  const u8 *source[G];
  e.aim(source, s.expert, there ? strip : 0);
  const u32 n = there ? e.end - e.begin : 0;
  _Pragma("nounroll") for (u32 chunk = 0; chunk < s.count; chunk += held) {
    const u32 rows = s.count - chunk < held ? s.count - chunk : held, number = e.lane < rows ? p.pairs[s.first + chunk + e.lane] / p.k : 0;
    if (chunk) sync(); // the sums are added
    float total[G][4] = {};
    e.run(total, source, strip, n, number, rows);
    const u32 row = tid() % 128 / 16;
    finish<W, G>(e, total, row < rows ? p.pairs[s.first + chunk + row] : 0, rows, first, (const float *)shared);
  }
}

constexpr u32 oneWarps = 4; // of a block of gated_one

// gated_one is gate and up of the only row, a block some strips of a slot, which is the place
// of an expert in the row's choice, or behind that the shared one. A warp finds it by the
// logits, so that nobody waits for a list, nor, once the expert is known, for where its
// matrices lie. Blocks are small: those of experts_join_one stand beside them.
template <class W> DEV void gated_one(const Mixture &p, const Choice &c, u8 *shared, u64 *pairs, u32 listed) {
  const Experts<W, 2> e = experts_of<W, 2>(p, shared, 1);
  u64 *matrices = (u64 *)(shared + oneWarps * p.stages * e.stageBytes());
  u32 *found = (u32 *)(matrices + 2 * listed);
  for (u32 i = tid(); i < listed; i += oneWarps * 32) matrices[i] = p.weights[0][i], matrices[listed + i] = p.weights[1][i];
  const u32 first = bid() * (oneWarps / p.parts), strip = first + e.warp / p.parts, slot = bid_y();
  dependency_wait();
  launch_dependents(); // only now: experts_join_one then knows that the logits are there
  if (e.warp == 0) { // one, as all blocks ask for the same lines
    u32 expert = c.experts;
    if (slot < c.k) {
      const Chosen by = choose(c, pairs);
      expert = reduce_max(e.lane < c.k && by.rank == slot ? by.expert : 0);
    }
    if (e.lane == 0) *found = expert;
  }
  sync();
  const u32 expert = *found;
  const u8 *const source[2] = {e.strip_of((const u8 *)matrices[expert], strip), e.strip_of((const u8 *)matrices[listed + expert], strip)};
  const u32 n = strip < (p.out + 15) / 16 ? e.end - e.begin : 0;
  float total[2][4] = {};
  e.run(total, source, strip, n, 0, 1);
  finish<W, 2>(e, total, slot, 1, first, (const float *)shared);
}

constexpr u32 joinWarps = 24; // of a block at most: 16 where that is enough, or there is no room for more

// Listed is rows of a slot as a block has them in shared memory, with where their
// expert's strip lies: a warp takes many in turn, and would wait for each of them.
struct alignas(16) Listed { const u8 *strip; u32 first, count; };

// slot_words is a slot from L2, beside the number of them: it may be there or not.
DEV f32x4 slot_words(const Mixture &p, u32 i, u32 most) {
  f32x4 v = {};
  if (i < most) v = load_l2_x4((const float *)p.tables + 4 + i * 4);
  return v;
}

// JoinLists are what a block of down and the sum reads and makes, in shared memory.
struct JoinLists {
  float *made; // [pairs][parts][16]
  Listed *list;
  u64 *matrices; // where they lie, of several rows
  u32 *pairs;
  float *weights; // of pairs

  // leave keeps what a warp has made of a unit: an entry of the list, and a part.
  METHOD void leave(const float (&total)[1][4], u32 unit, u32 parts, u32 lane) const {
    const Listed s = list[unit / parts];
    UNROLL for (u32 i = 0; i < 2; i++) {
      const u32 r = lane % 4 * 2 + i;
      if (r >= s.count) continue;
      float *to = made + (pairs[s.first + r] * parts + unit % parts) * 16 + lane / 4;
      to[0] = total[0][i];
      to[8] = total[0][i + 2];
    }
  }
};

// Join is down and the sum of up to 32 rows in one: a block makes 16 outputs by all experts.
template <class W> struct Join {
  const Experts<W, 1> &e;
  const JoinLists &lists;
  u32 strip, units; // entries of the list and parts
  // What is loaded next.
  u32 unit, granule;
  const u8 *source[1];
  u32 number, count; // lane i has the number of the i-th row

  METHOD void aim() {
    granule = e.begin;
    if (unit >= units) return;
    const Listed s = lists.list[unit / e.p.parts];
    source[0] = s.strip, count = s.count;
    number = e.lane < count ? lists.pairs[s.first + e.lane] : 0;
  }
  METHOD void start() {
    unit = e.warp;
    aim();
  }

  template <bool weights, bool rows> METHOD void loadNext(u32 stage) {
    if (unit < units) {
      if constexpr (weights) e.load(source, strip, granule, stage);
      if constexpr (rows) e.bring(number, count, granule, stage);
      if (++granule == e.end) {
        unit += bdim() / 32;
        aim();
      }
    }
    copy_commit();
  }

  METHOD void work(u32 index, u32 &stage) {
    const Mixture &p = e.p;
    float total[1][4] = {};
    _Pragma("nounroll") for (u32 i = e.begin; i < e.end; i++) {
      wait_groups(p.stages - 1);
      sync_warp();
      e.multiply(total, stage);
      sync_warp();
      loadNext<true, true>(stage);
      stage = stage + 1 == p.stages ? 0 : stage + 1;
    }
    lists.leave(total, index, p.parts, e.lane);
  }
};

// list_slots lists the slots by as many rows as a ring holds, and returns how many entries that
// makes. Up to as many rows each slot is one. first is the one of this thread's number; of
// matrices, in shared memory, is where each expert's lies.
template <class W> DEV u32 list_slots(const Experts<W, 1> &e, Listed *list, const u64 *matrices, u32 *totals, f32x4 first, u32 n, u32 most, u32 bucket) {
  u32 entries = 0;
  _Pragma("nounroll") for (u32 base = 0; base == 0 || base < most; base += bdim()) {
    const u32 i = base + tid();
    const f32x4 v = base == 0 ? first : slot_words(e.p, i, most);
    const u32 expert = __builtin_bit_cast(u32, v.x), pair = __builtin_bit_cast(u32, v.y), count = i < n ? __builtin_bit_cast(u32, v.z) : 0, chunks = (count + e.held - 1) / e.held;
    u32 at = i;
    if (bucket > e.held) {
      const u32 upto = warp_scan(chunks);
      if (base) sync();
      if (e.lane == 31) totals[e.warp] = upto;
      sync();
      const u32 warps = warp_scan(e.lane < bdim() / 32 ? totals[e.lane] : 0), before = shfl(warps, (int)((e.warp - 1) & 31));
      at = entries + upto - chunks + (e.warp ? before : 0);
      entries += shfl(warps, 31);
    } else if (base == 0) sync(); // matrices are there
    if (!chunks) continue;
    const u8 *strip = e.strip_of((const u8 *)matrices[expert], bid());
    _Pragma("nounroll") for (u32 c = 0; c < chunks; c++) list[at + c] = {strip, pair + c * e.held, count - c * e.held < e.held ? count - c * e.held : e.held};
  }
  return bucket > e.held ? entries : n;
}

// Sum says what a row gets: of `each` experts, those that it chose and, where it is listed,
// the shared one, else with.
struct Sum {
  const float *with, *shares, *routing;
  u32 chosen, each;
  const Step *step;
  u32 bucket;
  u32 most;  // slots
  float *noted; // where the choice of the only row goes, as routing
  u32 early; // the launch before is experts_gated, which begins when the router is done: lists and weights are read before it has ended
};

DEV JoinLists lists_at(u8 *at, const Mixture &p, const Sum &j, u32 held, u32 listed) {
  const u32 pairs = j.bucket * j.each;
  JoinLists l;
  l.made = (float *)at;
  l.list = (Listed *)(l.made + pairs * p.parts * 16);
  l.matrices = (u64 *)(l.list + j.most + pairs / held);
  l.pairs = (u32 *)(l.matrices + listed);
  l.weights = (float *)(l.pairs + pairs);
  return l;
}

// take_lists makes the lists of several rows, and returns how many entries and rows there are.
template <class W> DEV u32 take_lists(const Experts<W, 1> &e, const Sum &j, const JoinLists &l, u32 *totals, u32 listed, u32 &rows) {
  const Mixture &p = e.p;
  if (!j.early) dependency_wait();
  // All are asked for at once, of rows that are not there, too.
  const f32x4 first = slot_words(p, tid(), j.most);
  const u32 n = load_l2(p.tables), pairs = j.bucket * j.each;
  rows = load_l2(&j.step->rows);
  const u32 most = listed < pairs ? pairs : listed;
  _Pragma("nounroll") for (u32 base = 0; base < most; base += bdim()) {
    const u32 i = base + tid();
    u64 matrix = 0;
    u32 pair = 0;
    float weight = 0;
    if (i < listed) matrix = p.weights[0][i];
    if (i < pairs) {
      const u32 r = i / j.each, at = i % j.each;
      pair = load_l2(p.pairs + i);
      weight = load_l2(at < j.chosen ? j.routing + r * 2 * j.chosen + j.chosen + at : j.shares + r);
    }
    sync_warp();
    if (i < listed) l.matrices[i] = matrix;
    if (i < pairs) l.pairs[i] = pair, l.weights[i] = weight;
  }
  return list_slots<W>(e, l.list, l.matrices, totals, first, n, j.most, j.bucket);
}

// Joined is the output that a thread adds up: what it begins with is on its way while experts
// are multiplied.
struct Joined {
  u32 row;
  u64 at;
  bool mine;
  float sum, other, share;
};

DEV Joined begin_sum(const Mixture &p, const Sum &j, u32 rows, u32 strip) {
  Joined y{tid() / 16};
  const u32 m = strip * 16 + tid() % 16;
  y.mine = y.row < rows && m < p.out;
  y.at = (u64)y.row * p.out + m;
  y.sum = y.mine ? p.f32[y.at] : 0;
  y.other = y.mine && j.with ? j.with[y.at] : 0, y.share = y.mine && j.with ? j.shares[y.row] : 0;
  return y;
}

// add_up adds what the experts made of a row, which is all there.
template <class W> DEV void add_up(const Mixture &p, const Sum &j, const JoinLists &l, const Joined &y) {
  if (!y.mine) return;
  float sum = y.sum;
  // Not unrolled: a block goes through it once, by instructions that come from L2.
  _Pragma("nounroll") for (u32 i = 0; i < j.each; i++) {
    const float *from = l.made + (y.row * j.each + i) * p.parts * 16 + tid() % 16;
    float v = from[0];
    _Pragma("nounroll") for (u32 part = 1; part < p.parts; part++) v += from[part * 16];
    sum = fma(l.weights[y.row * j.each + i], whole_sum<W>(v, tid() % 16 / 8), sum);
  }
  if (j.with) sum = fma(y.share, y.other, sum);
  p.f32[y.at] = sum;
}

// list_chosen makes the lists of the only row, by a choice of its own, in the first warp.
template <class W> DEV Chosen list_chosen(const Experts<W, 1> &e, const Sum &j, const Choice &c, const JoinLists &l, u64 *rooms) {
  const Chosen by = choose(c, rooms);
  u32 expert = by.expert, rank = by.rank;
  float weight = by.weight;
  if (e.lane == c.k && c.k < j.each) expert = c.experts, rank = c.k, weight = sigmoid(c.shared());
  if (e.lane < j.each) {
    l.list[rank] = {e.strip_of((const u8 *)e.p.weights[0][expert], bid()), rank, 1};
    l.pairs[rank] = rank;
    l.weights[rank] = weight;
  }
  return by;
}

// note_choice writes what the only row chose.
DEV void note_choice(const Sum &j, const Choice &c, const Chosen &by, u32 lane) {
  if (lane < c.k) j.noted[by.rank] = (float)by.expert, j.noted[c.k + by.rank] = by.weight;
}

// join makes down of all rows and adds it up; one: of the only row, by a choice of its own.
template <class W, bool one> DEV void join(const Mixture &p, const Sum &j, const Choice &c, u8 *shared, u64 *rooms, u32 *totals, u32 held, u32 listed) {
  const u32 each = j.each;
  launch_dependents();
  touch(p.weights[0], listed);
  const Experts<W, 1> e = experts_of<W, 1>(p, shared, held);
  const JoinLists l = lists_at(shared + bdim() / 32 * p.stages * e.stageBytes(), p, j, held, one ? 0 : listed);
  u32 rows = 1, entries = each;
  Chosen by{};
  if constexpr (one) {
    if (e.warp == 0) by = list_chosen<W>(e, j, c, l, rooms);
  } else {
    entries = take_lists<W>(e, j, l, totals, listed, rows);
  }
  sync();
  Join<W> y{e, l, bid(), entries * p.parts};
  y.start();
  _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) y.template loadNext<true, false>(i);
  dependency_wait();
  if (one && bid() == 0 && e.warp == 0) note_choice(j, c, by, e.lane);
  y.start();
  _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) y.template loadNext<false, true>(i);
  const Joined to = begin_sum(p, j, rows, bid());
  u32 stage = 0;
  _Pragma("nounroll") for (u32 index = e.warp; index < y.units; index += bdim() / 32) y.work(index, stage);
  sync();
  add_up<W>(p, j, l, to);
}

#define EXPERTS(name, W)                                                                                                                              \
  KERNEL(slotWarps * 32, 3) void experts_gated_##name(const u64 *gate, const u64 *up, const u16 *x, u16 *dst, const u32 *tables, const u32 *pairs,    \
                                                      u32 in, u32 out, u32 granule, u32 shift, u32 stages, u32 parts, u32 k, u32 held, u32 listed) {  \
    DYNAMIC_SHARED(experts_gated_##name, shared);                                                                                                     \
    const Mixture p{{gate, up}, x, dst, nullptr, tables, pairs, in, out, granule, shift, stages, parts, k};                                           \
    slots<W, 2>(p, shared, held, listed);                                                                                                             \
  }                                                                                                                                                   \
  REGISTER(experts_gated_##name)                                                                                                                      \
  KERNEL(slotWarps * 32, 4) void experts_down_##name(const u64 *down, const u16 *x, float *dst, const u32 *tables, const u32 *pairs, u32 in, u32 out, \
                                                     u32 granule, u32 shift, u32 stages, u32 parts, u32 k, u32 held, u32 listed) {                    \
    DYNAMIC_SHARED(experts_down_##name, shared);                                                                                                      \
    const Mixture p{{down, down}, x, nullptr, dst, tables, pairs, in, out, granule, shift, stages, parts, k};                                         \
    slots<W, 1>(p, shared, held, listed);                                                                                                             \
  }                                                                                                                                                   \
  REGISTER(experts_down_##name)                                                                                                                       \
  KERNEL(joinWarps * 32) void experts_join_##name(const u64 *down, const u16 *x, float *dst, const u32 *tables, const u32 *pairs, u32 in, u32 out,    \
                                                  u32 granule, u32 shift, u32 stages, u32 parts, const float *with, const float *shares,              \
                                                  const float *routing, u32 chosen, u32 each, const Step *step, u32 bucket, u32 most, u32 held,       \
                                                  u32 listed, u32 early) {                                                                            \
    DYNAMIC_SHARED(experts_join_##name, shared);                                                                                                      \
    SHARED(experts_join_##name) u32 totals[joinWarps];                                                                                                \
    const Mixture p{{down, down}, x, nullptr, dst, tables, pairs, in, out, granule, shift, stages, parts, 1};                                         \
    join<W, false>(p, {with, shares, routing, chosen, each, step, bucket, most, nullptr, early}, {}, shared, nullptr, totals, held, listed);          \
  }                                                                                                                                                   \
  REGISTER(experts_join_##name)                                                                                                                       \
  KERNEL(oneWarps * 32) void experts_gated_one_##name(const u64 *gate, const u64 *up, const u16 *x, u16 *dst, u32 in, u32 out, u32 granule,           \
                                                      u32 shift, u32 stages, u32 parts, u32 listed, const float *logits, u32 experts, u32 chosen) {   \
    DYNAMIC_SHARED(experts_gated_one_##name, shared);                                                                                                 \
    alignas(16) SHARED(experts_gated_one_##name) u64 pairs[mostPairs];                                                                                \
    const Mixture p{{gate, up}, x, dst, nullptr, nullptr, nullptr, in, out, granule, shift, stages, parts, 1};                                        \
    gated_one<W>(p, {logits, experts, chosen, true}, shared, pairs, listed);                                                                          \
  }                                                                                                                                                   \
  REGISTER(experts_gated_one_##name)                                                                                                                  \
  KERNEL(512, 2) void experts_join_one_##name(const u64 *down, const u16 *x, float *dst, u32 in, u32 out, u32 granule, u32 shift, u32 stages,         \
                                              u32 parts, u32 each, u32 listed, const float *logits, u32 experts, u32 chosen, u32 renormalise,         \
                                              float *routing) {                                                                                       \
    DYNAMIC_SHARED(experts_join_one_##name, shared);                                                                                                  \
    alignas(16) SHARED(experts_join_one_##name) u64 pairs[mostPairs];                                                                                 \
    const Mixture p{{down, down}, x, nullptr, dst, nullptr, nullptr, in, out, granule, shift, stages, parts, 1};                                      \
    join<W, true>(p, {nullptr, nullptr, nullptr, chosen, each, nullptr, 1, each, routing, true}, {logits, experts, chosen, renormalise}, shared,      \
                  pairs, nullptr, 1, listed);                                                                                                         \
  }                                                                                                                                                   \
  REGISTER(experts_join_one_##name)
