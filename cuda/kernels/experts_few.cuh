// Few rows of a mixture by 4-bit weights on compute capability 9.0, with the bits of
// experts.cuh: the same parts of the inputs, the same products and order of sums.
//
// What differs is how weights and rows come: by the copy unit, which takes an instruction for
// a granule where a warp's own copies take dozens, as many as its products. Lines of rows are
// 16 bytes longer than they are, so that eight of them are read without conflicts. Of gate and
// up a block stays on its multiprocessor, and goes from one strip of an expert to the next
// without a gap; the rows lie whole in shared memory. Then its warps go on with down, as what all blocks
// made is there, or leave that to a launch of its own.
#pragma once
#include "experts.cuh"
#include "hopper.cuh"

// FewMixture is what a launch computes; the same for every block.
struct FewMixture {
  const u64 *weights[2]; // addresses of each expert's matrices: gate and up
  const u16 *x;          // [rows, in]
  const u32 *tables, *pairs;
  const Step *step;
  u32 in, out, granule, shift, stages;
  u32 parts;         // of the inputs: 1, 2 or 4
  u32 each;          // pairs of a row: those it chose, and the shared expert's
  u32 listed;        // experts, the shared one among them
  u32 bucket, slots; // at most: rows, slots in use
};

constexpr u32 fewWarps = 24, teamWarps = 4, fewTeams = fewWarps / teamWarps; // of a block; warps that share strips
constexpr u32 oneChunk = 2; // granules of a copy of one row's

// Divider divides numbers below 2^20 in a few instructions, exactly: the product is off by less than half of
// what is left to the next whole number. What a block goes through once comes from L2, 128 bytes at a time,
// and a division takes three such lines.
struct Divider {
  u32 by;
  float inverse;
  METHOD u32 quotient(u32 n) const { return (u32)(((float)n + 0.5f) * inverse); }
  METHOD u32 rest(u32 n) const { return n - quotient(n) * by; }
};
DEV Divider divider(u32 by) { return {by, reciprocal((float)by)}; }
DEV u32 log2_of(u32 power) { return 31 - (u32)__builtin_clz(power); }

// inputs_at are 64 inputs of eight rows, the block-th of their lines: each lane knows that of
// row lane % 8.
DEV Inputs inputs_at(Shared row, u32 block, u32 lane) {
  Inputs b;
  UNROLL for (u32 i = 0; i < 2; i++) {
    u32 v[4];
    load_matrix_at(v, row + ((block * 8 + i * 4 + lane / 8) << 4));
    b.low[i * 2] = v[0], b.high[i * 2] = v[1], b.low[i * 2 + 1] = v[2], b.high[i * 2 + 1] = v[3];
  }
  return b;
}

// FewGated multiplies strips of both matrices by up to 8 rows in a warp. Teams of warps take
// strips of a slot, as many as they have groups of warps, in turn.
template <class W> struct FewGated {
  static constexpr u32 perGranule = W::inputs / 64, sumsOf = 2 * 8 * 16;

  const FewMixture &p;
  u32 warp, lane;
  u32 begin, end;    // this warp's granules
  u8 *ring;          // this warp's stages, of two granules each
  u32 ringAt, barriers;
  u8 *x;
  u32 line; // bytes of a row
  const u64 *matrices; // [2, listed]
  const u32x4 *slots;  // {expert, first pair, pairs, 0}
  const u32 *numbers;  // of pairs
  float *sums;         // [fewWarps][2][8 rows][16]

  u32 groups, group, strips; // of a team; this warp's; of a matrix
  Divider wide, each;        // by the items of a slot; by the pairs of a row
  u32 items, step;
  // What is loaded next.
  u32 item, granule;
  const u8 *source[2];

  METHOD u32 depth() const { return (p.in + W::inputs - 1) / W::inputs; }
  METHOD u32 slotOf(u32 item) const { return wide.quotient(item); }
  METHOD u32 stripOf(u32 item) const { return wide.rest(item) * groups + group; }

  // aim finds the next item of which this warp has a strip.
  METHOD void aim() {
    while (item < items && stripOf(item) >= strips) item += step;
    if (item >= items) return;
    const u32 expert = slots[slotOf(item)].x;
    const u64 strip = (u64)stripOf(item) * depth() * p.granule;
    granule = begin;
    UNROLL for (u32 j = 0; j < 2; j++) source[j] = (const u8 *)matrices[j * p.listed + expert] + strip;
  }

  METHOD void copyNext(u32 stage) {
    if (item >= items) return;
    const u32 to = ringAt + stage * 2 * p.granule, barrier = barriers + stage * 8, from = granule * p.granule;
    copy_bulk_once(to, source[0] + from, p.granule, barrier, 2 * p.granule);
    copy_more_once(to + p.granule, source[1] + from, p.granule, barrier);
    if (++granule == end) {
      item += step;
      aim();
    }
  }

  // multiply adds the products of a granule, whose weights are in a stage, by the row whose
  // line each lane knows: that of column lane % 8.
  METHOD void multiply(float (&total)[2][4], Shared row, u32 granule, u32 stage) const {
    UNROLL for (u32 block = 0; block < perGranule; block++)
      multiply_packed<W>(total, inputs_at(row, granule * perGranule + block, lane), ring + stage * 2 * p.granule, p.granule, p.shift, block, lane);
  }

  // work multiplies an item's strip, and leaves the sums.
  METHOD void work(u32 item, Ring &at) {
    float total[2][4] = {};
    const u32x4 of = slots[slotOf(item)];
    const u32 column = lane % 8, number = column < of.z ? each.quotient(numbers[of.y + column]) : 0;
    const Shared row = shared_at(x) + number * line;
    const u32 last = stripOf(item) < strips ? end : begin;
    _Pragma("nounroll") for (u32 i = begin; i < last; i++) {
      wait_phase(barriers + at.stage * 8, at.phase);
      multiply(total, row, i, at.stage);
      sync_warp();
      copyNext(at.stage);
      at.next();
    }
    float *to = sums + warp * sumsOf;
    UNROLL for (u32 j = 0; j < 2; j++)
      UNROLL for (u32 i = 0; i < 4; i++) to[(j * 8 + lane % 4 * 2 + i % 2) * 16 + lane / 4 + i / 2 * 8] = total[j][i];
  }

  // store adds up the parts of an item, a thread of the team an output.
  template <class Next> METHOD void store(u32 item, const Next &next) const {
    const u32x4 of = slots[slotOf(item)];
    const u32 i = tid() % (teamWarps * 32), row = i / 16;
    if (!Next::flows && row >= of.z) return;
    // Four threads that stand beside each other have what goes to one place.
    const u32 output = Next::flows ? i / 4 % 4 * 2 + i % 2 + i / 2 % 2 * 8 : i % 16;
    const float *team = sums + warp / teamWarps * teamWarps * sumsOf;
    _Pragma("nounroll") for (u32 group = 0; group < groups; group++) {
      const u32 strip = wide.rest(item) * groups + group, m = strip * 16 + output;
      if (Next::flows ? strip >= strips : m >= p.out) break;
      float v[2];
      UNROLL for (u32 j = 0; j < 2; j++) {
        const float *part = team + group * p.parts * sumsOf + (j * 8 + row) * 16 + output;
        v[j] = part[0];
        _Pragma("nounroll") for (u32 k = 1; k < p.parts; k++) v[j] += part[k * sumsOf];
        v[j] = whole_sum<W>(v[j], output / 8);
      }
      const float made = silu(v[0]) * v[1];
      if constexpr (Next::flows) {
        const u32 two = pack_bf16(made, shfl_xor(made, 1)), more = shfl_xor(two, 2);
        if (i % 4 == 0 && row < of.z) next.put(numbers[of.y + row], strip, i / 4 % 4, two, more);
      } else {
        next.inner[(u64)numbers[of.y + row] * p.out + m] = (u16)pack_bf16(made, 0);
      }
    }
  }
};

// Gated is few_gated alone.
struct Gated {
  static constexpr bool flows = false;
  u16 *inner; // where results go
  METHOD void prepare(u32, u32, u32) {}
  METHOD float weight(u32) { return 0; }
  METHOD u32 turn() { return 0; }
  METHOD void list(u32, u32, float, u32) {}
  METHOD void clear() {}
};

// few_gated is gate and up. What comes next is told where its shared memory begins, and whose it
// takes over, before the kernel ahead has ended; and once this is on its way how many slots are used, rows,
// what weight loaded.
template <class W, class Next> DEV void few_gated(const FewMixture &p, u8 *shared, Next &next) {
  constexpr u32 threads = fewWarps * 32;
  const u32 depth = (p.in + W::inputs - 1) / W::inputs, padded = depth * W::inputs, line = padded * 2 + 16;
  // Rings, sums, rows, where matrices lie, slots, pairs, barriers.
  float *sums = (float *)(shared + fewWarps * p.stages * 2 * p.granule);
  u8 *x = (u8 *)(sums + fewWarps * FewGated<W>::sumsOf);
  u64 *matrices = (u64 *)(x + p.bucket * line);
  u32x4 *slots = (u32x4 *)(matrices + 2 * p.listed);
  u32 *numbers = (u32 *)(slots + p.slots);
  const u32 barriers = shared_address(numbers + (p.bucket * p.each + 3) / 4 * 4), taken = barriers; // the first: rows are there
  const u32 warp = shfl(tid() / 32, 0), lane = tid() % 32, part = warp & (p.parts - 1), cut = log2_of(p.parts);
  FewGated<W> y{p, warp, lane, part * depth >> cut, (part + 1) * depth >> cut};
  y.ring = shared + warp * p.stages * 2 * p.granule;
  y.ringAt = shared_address(y.ring);
  y.barriers = barriers + 8 + warp * p.stages * 8;
  y.x = x, y.line = line, y.matrices = matrices, y.slots = slots, y.numbers = numbers, y.sums = sums;
  y.groups = teamWarps >> cut, y.group = warp % teamWarps >> cut, y.strips = (p.out + 15) / 16;
  y.wide = divider((y.strips * p.parts + teamWarps - 1) / teamWarps), y.each = divider(p.each), y.step = fewTeams * gdim();
  if (elected()) {
    _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) barrier_init(y.barriers + i * 8, 1);
    if (warp == 0) barrier_init(taken, 1);
    barriers_made();
  }
  next.prepare((u8 *)sums - shared, (u8 *)slots - shared, barriers + (fewWarps * p.stages + 2) * 8 - shared_address(shared));
  _Pragma("nounroll") for (u32 i = tid(); i < 2 * p.listed; i += threads) matrices[i] = i < p.listed ? p.weights[0][i] : p.weights[1][i - p.listed];
  _Pragma("nounroll") for (u32 i = tid(); i < p.bucket * ((padded - p.in) / 8); i += threads) { // behind the inputs
    const u32 rest = (padded - p.in) / 8;
    *(u32x4 *)(x + i / rest * line + (p.in + i % rest * 8) * 2) = {0, 0, 0, 0};
  }
  const u32 rows = load_l2(&p.step->rows);
  sync_warp();
  dependency_wait();
  launch_dependents(); // only now: experts_join then knows that the router is done
  // A thread takes a slot, which may be there or not, and a pair: there are fewer of either.
  const u32 own = tid();
  const f32x4 slot = load_l2_x4((const float *)p.tables + 4 + (own < p.slots ? own : 0) * 4);
  const u32 used = p.tables[0], number = p.pairs[own < rows * p.each ? own : 0];
  const float weight = next.weight(rows);
  const u32 turn = next.turn();
  sync_warp(); // all are on their way at once
  if (warp == 0) {
    copy_bulk(shared_address(x), p.x, p.in * 2, taken, rows * p.in * 2);
    _Pragma("nounroll") for (u32 r = 1; r < rows; r++) copy_more(shared_address(x) + r * line, p.x + (u64)r * p.in, p.in * 2, taken);
  }
  if (own < p.slots) *(f32x4 *)(slots + own) = slot;
  if (own < rows * p.each) numbers[own] = number;
  y.items = used * y.wide.by;
  next.list(used, rows, weight, turn);
  sync();
  const u32 team = warp / teamWarps, first = bid() + team * gdim();
  y.item = first;
  y.aim();
  _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) y.copyNext(i);
  next.clear();
  wait_phase(taken, 0);
  Ring ring{p.stages};
  _Pragma("nounroll") for (u32 item = first; item < y.items; item += y.step) {
    y.work(item, ring);
    sync_group(1 + team, teamWarps * 32);
    y.store(item, next);
    sync_group(1 + team, teamWarps * 32);
  }
}

// one_gated is gated_one by the copy unit: a warp's part of both strips is there in a few copies, of some
// granules each, once the expert is known; the row comes while it is chosen.
template <class W> DEV void one_gated(const Mixture &p, const Choice &c, u8 *shared, u64 *pairs, u32 listed) {
  constexpr u32 perGranule = W::inputs / 64, sumsOf = 2 * 16;
  const u32 warp = shfl(tid() / 32, 0), lane = tid() % 32, depth = p.in / W::inputs, part = warp & (p.parts - 1), cut = log2_of(p.parts);
  const u32 begin = part * depth >> cut, count = ((part + 1) * depth >> cut) - begin, most = (depth + p.parts - 1) >> cut;
  // Granules of gate and of up, the row, where matrices lie, sums, barriers: the first is the row's.
  u8 *own = shared + warp * 2 * most * p.granule, *x = shared + oneWarps * 2 * most * p.granule;
  u64 *matrices = (u64 *)(x + p.in * 2);
  float *sums = (float *)(matrices + 2 * listed);
  u32 *found = (u32 *)(sums + oneWarps * sumsOf);
  const u32 chunks = (most + oneChunk - 1) / oneChunk, taken = shared_address(found + 4), barriers = taken + 8 + warp * chunks * 8;
  if (elected()) {
    _Pragma("nounroll") for (u32 i = 0; i < chunks; i++) barrier_init(barriers + i * 8, 1);
    if (warp == 0) barrier_init(taken, 1);
    barriers_made();
  }
  for (u32 i = tid(); i < listed; i += oneWarps * 32) matrices[i] = p.weights[0][i], matrices[listed + i] = p.weights[1][i];
  const u32 group = warp >> cut, strip = bid() * (oneWarps >> cut) + group, slot = bid_y();
  sync(); // barriers are there
  dependency_wait();
  launch_dependents(); // only now: experts_join_one then knows that the logits are there
  if (warp == oneWarps - 1) copy_bulk(shared_address(x), p.x, p.in * 2, taken);
  if (warp == 0) { // one, as all blocks ask for the same lines
    u32 expert = c.experts;
    if (slot < c.k) {
      const Chosen by = choose(c, pairs);
      expert = reduce_max(lane < c.k && by.rank == slot ? by.expert : 0);
    }
    if (lane == 0) *found = expert;
  }
  sync();
  const u32 expert = *found, n = strip < (p.out + 15) / 16 ? count : 0;
  const u64 from = ((u64)strip * depth + begin) * p.granule;
  const u8 *const gate = (const u8 *)matrices[expert] + from, *const up = (const u8 *)matrices[listed + expert] + from;
  _Pragma("nounroll") for (u32 i = 0; i < n; i += oneChunk) {
    const u32 bytes = (n - i < oneChunk ? n - i : oneChunk) * p.granule, at = i * p.granule, barrier = barriers + i / oneChunk * 8;
    copy_bulk_once(shared_address(own) + at, gate + at, bytes, barrier, 2 * bytes);
    copy_more_once(shared_address(own) + most * p.granule + at, up + at, bytes, barrier);
  }
  wait_phase(taken, 0);
  float total[2][4] = {};
  const Shared row = shared_at(x);
  _Pragma("nounroll") for (u32 i = 0; i < n; i++) {
    if (i % oneChunk == 0) wait_phase(barriers + i / oneChunk * 8, 0);
    UNROLL for (u32 block = 0; block < perGranule; block++)
      multiply_packed<W>(total, inputs_at(row, (begin + i) * perGranule + block, lane), own + i * p.granule, most * p.granule, p.shift, block, lane);
  }
  if (lane % 4 == 0)
    UNROLL for (u32 j = 0; j < 2; j++)
      UNROLL for (u32 i = 0; i < 2; i++) sums[warp * sumsOf + j * 16 + lane / 4 + i * 8] = total[j][i * 2];
  sync();
  const u32 m = strip * 16 + lane;
  if (part > 0 || lane >= 16 || m >= p.out) return;
  float v[2];
  UNROLL for (u32 j = 0; j < 2; j++) {
    const float *of = sums + warp * sumsOf + j * 16 + lane;
    v[j] = of[0];
    _Pragma("nounroll") for (u32 k = 1; k < p.parts; k++) v[j] += of[k * sumsOf];
    v[j] = whole_sum<W>(v[j], lane / 8);
  }
  p.bf16[(u64)slot * p.out + m] = (u16)pack_bf16(silu(v[0]) * v[1], 0);
}

// FewJoin is Join by the copy unit: a stage is a granule of down, and behind it lines of the
// rows that are multiplied by it.
template <class W> struct FewJoin {
  static constexpr u32 perGranule = W::inputs / 64, bytes = W::inputs * 2, line = bytes + 16;

  const Mixture &p;
  u32 warp, lane;
  u32 begin, end; // this warp's granules
  u8 *ring;
  u32 ringAt, barriers;
  u32 held;
  const JoinLists &lists;
  u32 units;  // entries of the list and parts
  u64 beyond; // bytes from the strips that are listed to those at work
  // What is loaded next; a lane has the address of its row, where there is one.
  u32 unit, granule, count;
  const u8 *source, *row;

  METHOD u32 stageBytes() const { return p.granule + held * line; }

  METHOD void aim() {
    granule = begin;
    if (unit >= units) return;
    const Listed s = lists.list[unit >> log2_of(p.parts)];
    source = s.strip + beyond, count = s.count;
    row = lane < count ? (const u8 *)(p.x + (u64)lists.pairs[s.first + lane] * p.in) : nullptr;
  }
  METHOD void start() {
    unit = warp;
    aim();
  }

  // loadNext starts the copies of the next granule; what of it rows do, weights may have done before.
  template <bool weights, bool rows> METHOD void loadNext(u32 stage) {
    if (unit >= units) return;
    const u32 to = ringAt + stage * stageBytes(), barrier = barriers + stage * 8;
    if constexpr (weights) copy_bulk_once(to, source + granule * p.granule, p.granule, barrier, p.granule + count * bytes);
    if constexpr (rows) copy_if(lane < count, to + p.granule + lane * line, row + granule * bytes, bytes, barrier);
    if (++granule == end) {
      unit += bdim() / 32;
      aim();
    }
  }

  METHOD void work(u32 index, Ring &at) {
    float total[1][4] = {};
    const u32 line0 = p.granule + (lane % 8 & (held - 1)) * line;
    _Pragma("nounroll") for (u32 i = begin; i < end; i++) {
      wait_phase(barriers + at.stage * 8, at.phase);
      const u8 *stage = ring + at.stage * stageBytes();
      const Shared row = shared_at(stage + line0);
      UNROLL for (u32 block = 0; block < perGranule; block++)
        multiply_packed<W>(total, inputs_at(row, block, lane), stage, p.granule, p.shift, block, lane);
      sync_warp();
      loadNext<true, true>(at.stage);
      at.next();
    }
    lists.leave(total, index, p.parts, lane);
  }
};

template <class W, bool one> DEV void few_join(const Mixture &p, const Sum &j, const Choice &c, u8 *shared, u64 *rooms, u32 *totals, u32 held, u32 listed) {
  launch_dependents();
  touch(p.weights[0], listed);
  const u32 warps = bdim() / 32, warp = shfl(tid() / 32, 0), lane = tid() % 32, depth = p.in / W::inputs, part = warp % p.parts;
  Experts<W, 1> e{p, warp, lane}; // where strips lie
  e.held = held;
  const u32 stage = p.granule + held * FewJoin<W>::line;
  const JoinLists l = lists_at(shared + warps * p.stages * stage, p, j, held, one ? 0 : listed);
  u8 *ring = shared + warp * p.stages * stage;
  const u32 barriers = shared_address(l.weights + j.bucket * j.each) + warp * p.stages * 8;
  if (elected()) {
    _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) barrier_init(barriers + i * 8, 1);
    barriers_made();
  }
  for (u32 i = 0; i < p.stages; i++) allow_unwritten(ring + i * stage + p.granule, held * FewJoin<W>::line);
  u32 rows = 1, entries = j.each;
  Chosen by{};
  if constexpr (!one) entries = take_lists<W>(e, j, l, totals, listed, rows);
  else if (warp == 0) by = list_chosen<W>(e, j, c, l, rooms);
  sync();
  FewJoin<W> y{p, warp, lane, part * depth / p.parts, (part + 1) * depth / p.parts, ring, shared_address(ring), barriers, held, l, entries * p.parts, 0};
  y.start();
  _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) y.template loadNext<true, false>(i);
  dependency_wait();
  if (one && bid() == 0 && warp == 0) note_choice(j, c, by, lane);
  y.start();
  _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) y.template loadNext<false, true>(i);
  const Joined to = begin_sum(p, j, rows, bid());
  Ring at{p.stages};
  _Pragma("nounroll") for (u32 index = warp; index < y.units; index += warps) y.work(index, at);
  sync();
  add_up<W>(p, j, l, to);
}

// FewDown is down and the sum behind few_gated in one launch, by blocks that are all at work at once. A warp
// goes on with down when it is done with its strips of gate and up, and takes of the others' what is there.
//
// Who reads what gate and up made sees by it whether it is there: all of it was `nothing` before, which no
// result is, and four numbers are stored as one. So nobody has to tell, behind a fence, which takes 2 to 3 µs
// while memory is busy. There are two places, of which a launch takes one and clears the other.
//
// A copy is of some granules of down. Rows come from L2 to registers, as operands, a granule ahead of
// what is multiplied: few_gated leaves them in the order in which lanes take them. Nobody asks for rows that it
// has no use for: what all blocks ask for at once waits at one slice of L2.
constexpr u32 downRing = 2; // copies on their way in a warp
constexpr u32 nothing = 0xffffffff; // two numbers that are none
DEV u32 larger_of(u32 a, u32 b) { return a > b ? a : b; }
template <class W> struct FewDown {
  static constexpr bool flows = true;
  static_assert(W::inputs == 64 || W::inputs == 128);
  static constexpr u32 perGranule = W::inputs / 64;

  const Mixture &p;
  const Sum &j;
  u32 chunk, apart, listed; // granules of a copy; whether what is made has room beside sums of gate and up
  u32 *places;              // {which of two is this launch's, blocks that know it, 0, 0}, and both
  u32 words;                // of a place
  u8 *shared;               // rings of all warps, where those of gate and up were, and what follows
  u32 wide;                 // bytes of a warp's
  // What prepare and list leave: where sums of gate and up, slots and the room behind them begin.
  u32 sums, slots, room;
  u32 used, rows;
  u32 *inner, *other; // the places

  // In the room: where matrices lie, weights of pairs, barriers, how many slots of each part are taken, what is made.
  METHOD u32 pairs() const { return (j.bucket * j.each + 1) / 2 * 2; }
  METHOD u32 weights() const { return room + listed * 8; }
  METHOD u32 barriers(u32 warp) const { return shared_address(shared) + weights() + pairs() * 4 + warp * downRing * 8; }
  METHOD u32 taken() const { return weights() + pairs() * 4 + fewWarps * downRing * 8; }
  METHOD u32 made() const { return apart ? taken() + 8 : sums; }
  METHOD void takeNone() const {
    if (tid() < 2) ((u32 *)(shared + taken()))[tid()] = 0;
  }

  // put stores of 16 inputs of a row lane t's: 2t and the next, 2t+8 and the next. Of 32 inputs its 8 lie one after the other.
  METHOD void put(u32 pair, u32 strip, u32 t, u32 low, u32 high) const {
    store_relaxed(inner + pair * (p.in / 2) + strip / 2 * 16 + t * 4 + strip % 2 * 2, (u64)high << 32 | (low == nothing ? 0x7fff7fff : low));
  }

  METHOD void prepare(u32 sumsAt, u32 slotsAt, u32 roomAt) {
    const u32 warp = shfl(tid() / 32, 0);
    sums = sumsAt, slots = slotsAt, room = roomAt;
    if (elected()) {
      _Pragma("nounroll") for (u32 i = 0; i < downRing; i++) barrier_init(barriers(warp) + i * 8, 1);
      barriers_made();
    }
    takeNone();
    u64 *matrices = (u64 *)(shared + room);
    _Pragma("nounroll") for (u32 i = tid(); i < listed; i += bdim()) matrices[i] = p.weights[0][i];
  }

  METHOD float weight(u32 rows) const {
    const Divider each = divider(j.each);
    const u32 row = each.quotient(tid()), at = each.rest(tid());
    return row < rows ? load_l2(at < j.chosen ? j.routing + row * 2 * j.chosen + j.chosen + at : j.shares + row) : 0;
  }

  METHOD u32 turn() const { return load_relaxed(places).x; } // what it is of orders nothing else

  METHOD void list(u32 n, u32 count, float weight, u32 turn) {
    used = n, rows = count;
    inner = places + 4 + turn * words, other = places + 4 + (1 - turn) * words;
    if (tid() < rows * j.each) ((float *)(shared + weights()))[tid()] = weight;
  }

  // clear comes when all threads know which place it is. The last block to know says which is the next launch's.
  METHOD void clear() const {
    if (tid() == 0 && atomic_add(places + 1, 1) == gdim() - 1) {
      atomic_add(places + 1, -gdim());
      atomic_add(places, inner < other ? 1 : -1);
    }
    _Pragma("nounroll") for (u32 i = bid() * fewWarps * 32 + tid(); i < words / 4; i += gdim() * fewWarps * 32) ((u32x4 *)other)[i] = {nothing, nothing, nothing, nothing};
  }

  METHOD void run() const {
    const u32 warp = shfl(tid() / 32, 0), lane = tid() % 32, depth = p.in / W::inputs, part = warp & (p.parts - 1), cut = log2_of(p.parts), strips = (p.out + 15) / 16;
    // A warp has a part of the inputs, and takes the block's next slot of that part when it has room for its weights: warps are done
    // with gate and up at different times.
    const u32 from = part * depth >> cut, count = ((part + 1) * depth >> cut) - from, wanted = bid() < strips ? used : 0;
    const u32 base = shared_address(shared), list = base + slots, numbers = list + j.most * 16, barriers = this->barriers(warp), counter = base + taken() + part * 4;
    // A slot's part of a strip comes in so many copies, of `bytes` but the last.
    const u32 copies = (count + chunk - 1) / chunk, tail = count - (copies - 1) * chunk, bytes = chunk * p.granule, less = tail * p.granule, ring = base + warp * wide;
    u32 strip = bid(), slot, still; // what is copied: of the last slot that was taken so many are to come
    const u8 *source;
    auto copyNext = [&](u32 to, u32 barrier) INLINE {
      if (slot >= wanted) return;
      if (still == 0) {
        slot = shfl(count_word(counter, lane == 0), 0);
        if (slot >= wanted) return;
        still = copies;
        const u32x2 at = get_x2(base + room + get_word(list + slot * 16) * 8);
        source = (const u8 *)((u64)at.y << 32 | at.x) + ((u64)strip * depth + from) * p.granule;
      }
      const u32 n = --still ? bytes : less;
      copy_bulk_once(to, source, n, barrier, n);
      source += n;
    };
    // Where the ring is read: its place and barrier, and the barrier's phase. The two places take turns.
    const u32 both = 2 * barriers + 8;
    u32 at = 0, barrier = barriers, parity = 0;
    auto onward = [&]() INLINE {
      at = bytes - at, barrier = both - barrier;
      if (at == 0) parity ^= 1;
    };
    u32 coming; // the slot whose rows come next
    auto begin = [&]() INLINE {
      slot = 0, still = 0;
      copyNext(ring + at, barrier);
      coming = slot;
      copyNext(ring + bytes - at, both - barrier);
    };
    begin();
    if (!apart) sync();
    const u32 *const origin = inner + from * W::inputs / 2 + lane % 4 * 4;
    _Pragma("nounroll") for (; strip < strips; strip += gdim()) {
      const Joined to = begin_sum(p, j, rows, strip);
      if (strip != bid()) {
        sync(); // what was made is added up
        begin();
      }
      // Operands come a granule ahead: this lane's, of its column's row, from the slot's that comes then. That is the last one that was
      // taken, as the ring is a copy ahead.
      const u32 *row = origin;
      u32x4 b[perGranule][2] = {};
      auto aimRow = [&]() INLINE {
        const u32x4 of = get_x4(list + coming * 16);
        const u32 column = lane / 4 < of.z ? lane / 4 : 0; // where there is none the first one, which is asked for anyway
        row = origin + get_word(numbers + (of.y + column) * 4) * (p.in / 2);
      };
      auto bring = [&](const u32 *row, u32 block) INLINE {
        UNROLL for (u32 i = 0; i < 2; i++) b[block][i] = load_relaxed(row + block * 32 + i * 16);
      };
      auto missing = [&]() INLINE {
        u32 v = 0;
        UNROLL for (u32 block = 0; block < perGranule; block++)
          UNROLL for (u32 i = 0; i < 2; i++) v = larger_of(larger_of(v, b[block][i].x), b[block][i].z);
        return ballot(v == nothing);
      };
      if (coming < wanted) {
        aimRow();
        UNROLL for (u32 block = 0; block < perGranule; block++) bring(row, block);
        row += W::inputs / 2;
      }
      _Pragma("nounroll") while (coming < wanted) {
        const u32 now = coming;
        float total[1][4] = {};
        u32 todo = copies;
        _Pragma("nounroll") do {
          wait_phase(barrier, parity);
          const u8 *weights = shared + (warp * wide + at);
          u32 n = --todo ? chunk : tail;
          _Pragma("nounroll") do {
            while (missing()) {
              let_others();
              UNROLL for (u32 block = 0; block < perGranule; block++) bring(row - W::inputs / 2, block);
            }
            if (n == 1 && todo == 0) {
              coming = slot;
              if (coming < wanted) aimRow();
            }
            UNROLL for (u32 block = 0; block < perGranule; block++) {
              const u32x4 v = b[block][0], w = b[block][1];
              multiply_packed<W>(total, {{v.x, v.z, w.x, w.z}, {v.y, v.w, w.y, w.w}}, weights, p.granule, p.shift, block, lane);
              if (coming < wanted) bring(row, block);
            }
            row += W::inputs / 2, weights += p.granule;
          } while (--n);
          sync_warp();
          copyNext(ring + at, barrier);
          onward();
        } while (todo);
        // What the slot's part made.
        const u32x4 of = get_x4(list + now * 16);
        UNROLL for (u32 i = 0; i < 2; i++) {
          const u32 r = lane % 4 * 2 + i;
          if (r >= of.z) continue;
          float *to = (float *)(shared + made()) + ((get_word(numbers + (of.y + r) * 4) << cut) + part) * 16 + lane / 4;
          to[0] = total[0][i];
          to[8] = total[0][i + 2];
        }
      }
      sync();
      takeNone();
      add_up<W>(p, j, {(float *)(shared + made()), nullptr, nullptr, nullptr, (float *)(shared + weights())}, to);
    }
  }
};

template <class W> DEV void few_whole(const FewMixture &p, const Mixture &down, const Sum &j, u8 *shared, u32 chunk, u32 apart, u32 *places, u32 words) {
  FewDown<W> next{down, j, chunk, apart, p.listed, places, words, shared, p.stages * 2 * p.granule};
  few_gated<W>(p, shared, next);
  next.run();
}

#define EXPERTS_FEW(name, W)                                                                                                                           \
  HOPPER_KERNEL(fewWarps * 32)                                                                                                                         \
  void experts_few_gated_##name(const u64 *gate, const u64 *up, const u16 *x, u16 *dst, const u32 *tables, const u32 *pairs, const Step *step,         \
                                u32 in, u32 out, u32 granule, u32 shift, u32 stages, u32 parts, u32 each, u32 listed, u32 bucket, u32 slots) {         \
    DYNAMIC_SHARED(experts_few_gated_##name, shared);                                                                                                  \
    const FewMixture p{{gate, up}, x, tables, pairs, step, in, out, granule, shift, stages, parts, each, listed, bucket, slots};                       \
    Gated alone{dst};                                                                                                                                  \
    few_gated<W>(p, shared, alone);                                                                                                                    \
  }                                                                                                                                                    \
  REGISTER(experts_few_gated_##name)                                                                                                                   \
  HOPPER_KERNEL(joinWarps * 32)                                                                                                                        \
  void experts_few_join_##name(const u64 *down, const u16 *x, float *dst, const u32 *tables, const u32 *pairs, u32 in, u32 out, u32 granule,           \
                               u32 shift, u32 stages, u32 parts, const float *with, const float *shares, const float *routing, u32 chosen, u32 each,   \
                               const Step *step, u32 bucket, u32 most, u32 held, u32 listed, u32 early) {                                              \
    DYNAMIC_SHARED(experts_few_join_##name, shared);                                                                                                   \
    SHARED(experts_few_join_##name) u32 totals[joinWarps];                                                                                             \
    const Mixture p{{down, down}, x, nullptr, dst, tables, pairs, in, out, granule, shift, stages, parts, 1};                                          \
    few_join<W, false>(p, {with, shares, routing, chosen, each, step, bucket, most, nullptr, early}, {}, shared, nullptr, totals, held, listed);       \
  }                                                                                                                                                    \
  REGISTER(experts_few_join_##name)                                                                                                                    \
  HOPPER_KERNEL(fewWarps * 32)                                                                                                                         \
  void experts_few_whole_##name(const u64 *gate, const u64 *up, const u64 *down, const u16 *x, float *dst, const u32 *tables,                          \
                                const u32 *pairs, u32 in, u32 middle, u32 out, u32 granule, u32 shift, u32 stages, u32 parts, u32 parts2,              \
                                const float *with, const float *shares, const float *routing, u32 chosen, u32 each, const Step *step,                  \
                                u32 bucket, u32 slots, u32 chunk, u32 apart, u32 listed, u32 *places, u32 words) {                                     \
    DYNAMIC_SHARED(experts_few_whole_##name, shared);                                                                                                  \
    const FewMixture p{{gate, up}, x, tables, pairs, step, in, middle, granule, shift, stages, parts, each, listed, bucket, slots};                    \
    const Mixture m{{down, down}, nullptr, nullptr, dst, tables, pairs, middle, out, granule, shift, downRing, parts2, 1};                             \
    few_whole<W>(p, m, {with, shares, routing, chosen, each, step, bucket, slots, nullptr, true}, shared, chunk, apart, places, words);                \
  }                                                                                                                                                    \
  REGISTER(experts_few_whole_##name)                                                                                                                   \
  KERNEL(oneWarps * 32, 6)                                                                                                                             \
  void experts_one_gated_##name(const u64 *gate, const u64 *up, const u16 *x, u16 *dst, u32 in, u32 out, u32 granule, u32 shift, u32 parts,            \
                                u32 listed, const float *logits, u32 experts, u32 chosen) {                                                            \
    DYNAMIC_SHARED(experts_one_gated_##name, shared);                                                                                                  \
    alignas(16) SHARED(experts_one_gated_##name) u64 pairs[mostPairs];                                                                                 \
    const Mixture p{{gate, up}, x, dst, nullptr, nullptr, nullptr, in, out, granule, shift, 1, parts, 1};                                              \
    one_gated<W>(p, {logits, experts, chosen, true}, shared, pairs, listed);                                                                           \
  }                                                                                                                                                    \
  REGISTER(experts_one_gated_##name)                                                                                                                   \
  KERNEL(512, 2)                                                                                                                                       \
  void experts_one_join_##name(const u64 *down, const u16 *x, float *dst, u32 in, u32 out, u32 granule, u32 shift, u32 stages, u32 parts, u32 each,    \
                               u32 listed, const float *logits, u32 experts, u32 chosen, u32 renormalise, float *routing) {                            \
    DYNAMIC_SHARED(experts_one_join_##name, shared);                                                                                                   \
    alignas(16) SHARED(experts_one_join_##name) u64 pairs[mostPairs];                                                                                  \
    const Mixture p{{down, down}, x, nullptr, dst, nullptr, nullptr, in, out, granule, shift, stages, parts, 1};                                       \
    few_join<W, true>(p, {nullptr, nullptr, nullptr, chosen, each, nullptr, 1, each, routing, true}, {logits, experts, chosen, renormalise}, shared,   \
                      pairs, nullptr, 1, listed);                                                                                                      \
  }                                                                                                                                                    \
  REGISTER(experts_one_join_##name)
