// Decode attention of spans with many query vectors on compute capability 9.0: what
// attend.cu does over bf16 keys and values of 128 dimensions, with its bits, by wgmma.
//
// A block takes up to 64 query vectors of one KV head of one span, and up to 16 units.
// Two warpgroups take every other group of FANOUT units, and join what a group comes to,
// in turn, to what the groups before it came to. Of four more warps each copies the keys
// or the values of one of them into swizzled shared memory.
//
// Bits are those of attend.cu: an element of a product is one chain of wgmma over k,
// each unit's from 0, as there of mma; what is added up of a unit's probabilities, and
// the order in which units and groups are joined, are the same.
#include "attend_hopper.cuh"

static constexpr u32 DIM = 128, VECTORS = 64;
static constexpr u32 TILE = UNIT * DIM * 2, HALF = TILE / 2; // bytes of queries, keys or values of 64 lines, and of 64 of their elements
static constexpr u32 KEYS = 3, VALUES = 2;                   // stages of a warpgroup
static constexpr u32 GROUPS = 2, MOST = 16 / FANOUT;         // warpgroups that multiply; groups of units
static constexpr u32 RINGS = TILE, RING = (KEYS + VALUES) * TILE, JOINED = RINGS + GROUPS * RING;
static constexpr u32 BARRIERS = JOINED + VECTORS * DIM * 4 + 128 * 16; // sums, and maxima and weights, of the groups before

#ifdef __NVPTX__
// start_values starts o = p[64, 64] · values[64, 128]: 4 steps of 16 slots.
DEV void start_values(float (&o)[16][4], const u32 (&p)[4][4], u64 v) {
#define STEP(n, a, p) "add.s64 b, %80, " #n ";\n\t" WGMMA(128) "{" N64 "}, " a ", b, " #p ", 1, 1, 1;\n\t"
  asm volatile("{\n\t.reg .pred no, yes;\n\t.reg .b64 b;\n\tsetp.ne.b64 no, %80, %80;\n\tsetp.eq.b64 yes, %80, %80;\n\twgmma.fence.sync.aligned;\n\t" STEP(0, "{%64, %65, %66, %67}", no)
                   STEP(128, "{%68, %69, %70, %71}", yes) STEP(256, "{%72, %73, %74, %75}", yes) STEP(384, "{%76, %77, %78, %79}", yes) "wgmma.commit_group.sync.aligned;\n\t}"
               : SUMS16(o)
               : R4(p, 0), R4(p, 1), R4(p, 2), R4(p, 3), "l"(v)
               : "memory");
#undef STEP
}

#else
DEV void start_values(float (&o)[16][4], const u32 (&p)[4][4], u64 v) {
  products_fence();
  for (u32 i = 0; i < 4; i++) product(o, p[i], v + i * 128, i > 0, true);
  products_commit();
}
#endif

// Barriers of a block, in shared memory.
struct Barriers {
  u32 at;
  METHOD u32 queries() const { return at; }
  METHOD u32 joined(u32 group) const { return at + 8 + group * 8; } // of units, but for the last
  METHOD u32 full(u32 g, bool values, u32 i) const { return at + MOST * 8 + (g * (KEYS + VALUES) + stage(values, i)) * 8; }
  METHOD u32 empty(u32 g, bool values, u32 i) const { return full(g, values, i) + GROUPS * (KEYS + VALUES) * 8; }
  // stage of a warpgroup's i-th keys or values, and the parity of its round.
  METHOD static u32 stage(bool values, u32 i) { return values ? KEYS + i % VALUES : i % KEYS; }
  METHOD static u32 parity(bool values, u32 i) { return (values ? i / VALUES : i / KEYS) % 2; }
};

// unit_of is the i-th unit of a warpgroup among the block's, and units_of how many it has.
DEV u32 unit_of(u32 g, u32 i) { return (i / FANOUT * GROUPS + g) * FANOUT + i % FANOUT; }
DEV u32 units_of(u32 g, u32 units) {
  u32 n = 0;
  for (u32 first = g * FANOUT; first < units; first += GROUPS * FANOUT) n += units - first < FANOUT ? units - first : FANOUT;
  return n;
}

// bring is a copying warp: the keys, or the values, of warpgroup g, before which those
// that copy values copy half of the queries each. Two copies are on their way; what has
// come is told of before there is a wait for room.
DEV void bring(const Work &w, u32 shared, const Barriers &b, u32 g, bool values, const u16 *q) {
  const u32 lane = tid() % 32, line0 = lane / 16, piece = lane % 16, mine = units_of(g, w.units);
  auto page_of = [&](u32 i) { return w.pages[i < mine ? unit_of(g, i) : 0]; };
  u64 next = page_of(0);
  if (values) {
    dependency_wait();
    // Lines that nobody writes make sums that nobody stores.
    const u32 lines = (w.count + 3) / 4 * 4, half = g * 2;
#pragma unroll 1
    for (u32 line = half + line0; line < lines; line += 4) {
      const u32 n = w.first + (line < w.count ? line : 0), row = n / w.group;
      copy_piece<HALF>(shared, line, piece, q + ((u64)(w.row + row) * w.q_heads + w.head + n - row * w.group) * DIM + piece * 8, true);
    }
    if (g == 0)
      for (u32 part = 0; part < 2; part++) allow_unwritten(shared + part * HALF + lines * 128, (VECTORS - lines) * 128);
    copy_commit();
  }
  bool untold = values; // of queries, or of the copy before
  auto tell = [&](u32 i) __attribute__((always_inline)) { // of copies until then
    if (untold) written(i ? b.full(g, values, i - 1) : b.queries());
    untold = false;
  };
  bool waits = !values; // for the kernel ahead, which writes the newest keys
#pragma unroll 1
  for (u32 i = 0; i < mine; i++) {
    const u64 page = next;
    next = page_of(i + 1);
    const u32 u = w.unit + unit_of(g, i), held = w.view.held - u * UNIT, room = b.empty(g, values, i), parity = Barriers::parity(values, i) ^ 1;
    if (waits && (u + 1) * UNIT > w.written) {
      dependency_wait();
      waits = false;
    }
    if (!shfl((u32)phase_over(room, parity), 0)) {
      copy_wait<0>();
      tell(i);
    }
    wait_phase(room, parity);
    const u32 to = shared + RINGS + g * RING + Barriers::stage(values, i) * TILE;
    const u8 *from = (const u8 *)page + (values ? w.values : w.keys) + lane * 16;
#pragma unroll 8
    for (u32 j = 0; j < UNIT / 2; j++) copy_piece<HALF>(to, line0 + j * 2, piece, from + j * 512, line0 + j * 2 < held);
    copy_commit();
    copy_wait<1>();
    tell(i);
    untold = true;
  }
  copy_wait<0>();
  tell(mine);
}

// soften makes probabilities of a unit's scores, in rows r and r + 8: the maxima, the
// weights, and the operand of the second product. Weights are added up as by attend.cu's
// warps, of 16 slots each.
DEV void soften(u32 (&p)[4][4], float (&top)[2], float (&weight)[2], const float (&s)[8][4], float scale) {
  UNROLL for (int h = 0; h < 2; h++) {
    float peak = __builtin_fmaxf(s[0][2 * h], s[0][2 * h + 1]);
    UNROLL for (int n = 1; n < 8; n++) peak = __builtin_fmaxf(peak, __builtin_fmaxf(s[n][2 * h], s[n][2 * h + 1]));
    peak = __builtin_fmaxf(peak, shfl_xor(peak, 1));
    peak = __builtin_fmaxf(peak, shfl_xor(peak, 2));
    top[h] = peak * scale;
    const float base = peak == NONE ? 0 : top[h];
    float sums[4];
    UNROLL for (int k = 0; k < 4; k++) {
      float sum = 0;
      UNROLL for (int n = 0; n < 2; n++) {
        float e[2];
        UNROLL for (int j = 0; j < 2; j++) e[j] = ex2(fma(s[2 * k + n][2 * h + j], scale, -base));
        const u32 pair = p[k][2 * n + h] = pack_bf16(e[0], e[1]);
        sum += low_bf16(pair) + high_bf16(pair);
      }
      sum += shfl_xor(sum, 1);
      sum += shfl_xor(sum, 2);
      sums[k] = sum;
    }
    weight[h] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
}

// Sums are what units of rows r and r + 8 come to: maxima, weights, sums.
struct Sums {
  float m[2], l[2], o[16][4];
  METHOD void clear() {
    UNROLL for (int h = 0; h < 2; h++) m[h] = NONE, l[h] = 0;
    UNROLL for (int n = 0; n < 16; n++)
      UNROLL for (int j = 0; j < 4; j++) o[n][j] = 0;
  }
  // add joins what comes behind.
  METHOD void add(const float (&top)[2], const float (&weight)[2], const float (&part)[16][4]) {
    UNROLL for (int h = 0; h < 2; h++) {
      float a, b;
      fold(m[h], top[h], a, b);
      l[h] = join(l[h], a, weight[h], b);
      UNROLL for (int n = 0; n < 16; n++)
        UNROLL for (int j = 2 * h; j < 2 * h + 2; j++) o[n][j] = join(o[n][j], a, part[n][j], b);
    }
  }
  // follow joins what comes before, which lies in shared memory; null: nothing.
  METHOD void follow(const f32x4 *before) {
    const f32x4 first = before ? before[16 * 128] : f32x4{NONE, NONE, 0, 0};
    float a[2], b[2];
    UNROLL for (int h = 0; h < 2; h++) {
      float top = h ? first.y : first.x;
      fold(top, m[h], a[h], b[h]);
      m[h] = top;
      l[h] = join(h ? first.w : first.z, a[h], l[h], b[h]);
    }
    UNROLL for (int n = 0; n < 16; n++) {
      const f32x4 x = before ? before[n * 128] : f32x4{0, 0, 0, 0};
      o[n][0] = join(x.x, a[0], o[n][0], b[0]), o[n][1] = join(x.y, a[0], o[n][1], b[0]);
      o[n][2] = join(x.z, a[1], o[n][2], b[1]), o[n][3] = join(x.w, a[1], o[n][3], b[1]);
    }
  }
  METHOD void keep(f32x4 *to) const {
    UNROLL for (int n = 0; n < 16; n++) to[n * 128] = f32x4{o[n][0], o[n][1], o[n][2], o[n][3]};
    to[16 * 128] = f32x4{m[0], m[1], l[0], l[1]};
  }
};

// store brings a block's sums to the rows, or to their parts.
DEV void store(const Sums &x, const Work &w, const Target &to) {
  const u32 lane = tid() % 32;
  UNROLL for (int h = 0; h < 2; h++) {
    const u32 i = tid() / 32 % 4 * 16 + h * 8 + lane / 4, n = w.first + i, row = n / w.group;
    if (i >= w.count) continue;
    const u64 at = (u64)(w.row + row) * w.q_heads + w.head + n - row * w.group;
    if (to.parts > 1) {
      float *sum = to.sums + (at * to.parts + w.part) * DIM + lane % 4 * 2;
      UNROLL for (int n = 0; n < 16; n++) *(f32x2 *)(sum + n * 8) = {x.o[n][2 * h], x.o[n][2 * h + 1]};
      if (lane % 4 == 0) to.marks[at * to.parts + w.part] = {x.m[h], x.l[h]};
      continue;
    }
    const float inverse = reciprocal(x.l[h]);
    UNROLL for (int n = 0; n < 16; n++) {
      const f32x2 y = {x.o[n][2 * h] * inverse, x.o[n][2 * h + 1] * inverse};
      const u64 column = at * DIM + n * 8 + lane % 4 * 2;
      if (to.out32) *(f32x2 *)(to.out32 + column) = y;
      if (to.out16) *(u32 *)(to.out16 + column) = pack_bf16(y.x, y.y);
    }
  }
}

// multiply is a warpgroup that multiplies.
DEV void multiply(const Work &w, const Target &to, u32 shared, u8 *base, const Barriers &b, u32 g, float scale) {
  const u32 lane = tid() % 32, mine = units_of(g, w.units), row = tid() / 32 % 4 * 16 + lane / 4; // and row + 8
  u32 index[2];
  UNROLL for (int h = 0; h < 2; h++) index[h] = w.base + (w.first + (row + 8 * h < w.count ? row + 8 * h : 0)) / w.group;
  const u64 queries = descriptor(shared);
  const u32 ring = shared + RINGS + g * RING;
  f32x4 *joined = (f32x4 *)(base + JOINED) + tid() % 128;
  float s[8][4], part[16][4], top[2], weight[2];
  u32 p[4][4];
  Sums x;
  wait_phase(b.queries(), 0);
#pragma unroll 1
  for (u32 i = 0; i < mine; i++) {
    wait_phase(b.full(g, false, i), Barriers::parity(false, i));
    start_scores(s, queries, descriptor(ring + Barriers::stage(false, i) * TILE));
    products_wait<0>(s);
    arrive(b.empty(g, false, i), lane == 0);
    const u32 slot = (w.unit + unit_of(g, i)) * UNIT;
    if (w.view.window != 0 || slot + UNIT > w.base + 1) hide(s, w.view, slot, index);
    soften(p, top, weight, s, scale);
    wait_phase(b.full(g, true, i), Barriers::parity(true, i));
    start_values(part, p, descriptor(ring + Barriers::stage(true, i) * TILE, HALF));
    products_wait<0>(part);
    arrive(b.empty(g, true, i), lane == 0);
    if (i % FANOUT == 0) x.clear();
    x.add(top, weight, part);
    if (i % FANOUT != FANOUT - 1 && i + 1 < mine) continue;
    const u32 group = i / FANOUT * GROUPS + g;
    if (group) wait_phase(b.joined(group - 1), 0);
    x.follow(group ? joined : nullptr);
    if ((group + 1) * FANOUT >= w.units) {
      store(x, w, to);
    } else {
      x.keep(joined);
      arrive(b.joined(group), true);
    }
  }
}

// Arguments and grid as of attend.cu, without gates.
HOPPER_KERNEL(384)
void attend_decode_hopper(float *out32, u16 *out16, const u16 *q, float *sums, f32x2 *marks, const Step *step, u32 layer, u32 q_heads, u32 kv_heads, float scale, u32 units, u32 parts,
                          u32 blocks) {
  DYNAMIC_SHARED(attend_decode_hopper, dynamic);
  launch_dependents();
  const Step head = head_of(step);
  if (bid_z() >= head.spans) return;
  Work w;
  if (!work_of<TILE>(w, span_at(step, head, bid_z()), head.pages, layer, q_heads, kv_heads, units, blocks, VECTORS)) return;
  // The swizzle wants tiles on 1024 bytes.
  const u32 shared = (shared_address(dynamic) + 1023) / 1024 * 1024, group = tid() / 128;
  const Barriers b{shared + BARRIERS};
  if (tid() == 0) {
    barrier_init(b.queries(), 64);
    for (u32 i = 0; i + 1 < MOST; i++) barrier_init(b.joined(i), 128);
    for (u32 i = 0; i < GROUPS * (KEYS + VALUES); i++) {
      barrier_init(b.full(0, false, 0) + i * 8, 32);
      barrier_init(b.empty(0, false, 0) + i * 8, 4); // the warps that multiply
    }
    barriers_made();
  }
  sync();
  if (group == GROUPS) {
    fewer_registers<56>();
    const u32 warp = tid() / 32 % 4;
    bring(w, shared, b, warp % GROUPS, warp / GROUPS, q);
    return;
  }
  if (group * FANOUT >= w.units) return;
  dependency_wait(); // what is written may still be read
  more_registers<224>();
  multiply(w, {out32, out16, sums, marks, parts, nullptr}, shared, dynamic + (shared - shared_address(dynamic)), b, group, scale);
}
REGISTER(attend_decode_hopper)
