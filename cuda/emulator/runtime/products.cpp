// Products of a warpgroup (wgmma). Each warp makes its own 16 rows of the 64 when
// its lanes meet, from what shared memory holds then. The sums lie apart, and the
// lanes' own are NaN, until the warp waits for the group of products; the checked
// build looks at the shared memory that they read at both times.
#include "hopper_state.h"

#include <immintrin.h>
#include <string.h>

#include <algorithm>
#include <vector>

namespace emulator {

namespace {

constexpr u32 rows = 16, depth = 16; // of a product, by one warp
constexpr u32 hidden = 0xffffffff;   // a NaN, in sums that are on their way

// Product is what the lanes of a warp start; all but the registers is the same in each.
struct Product {
  float *c[wave_lanes];
  const u32 *a[wave_lanes]; // null: a_tile
  u64 a_tile, b_tile;
  u32 tiles;
  bool b_rows, add;
  const char *file;
  int line;
};
struct Wait {
  u32 newest;
  const char *file;
  int line;
};
static_assert(sizeof(Product) <= sizeof(Wave::exchange[0]));

// Tile is a matrix of a product in shared memory, in lines of 128 bytes whose
// 16-byte pieces are turned by the last bits of the line's number. Either lines run
// along k, a line for each row or column of the product, of which it takes columns
// (a bit for each 32 bytes); or 16 lines, of k, run along 64 columns, and the next
// 64 columns lie lead further on.
struct Tile {
  u32 address, lines, columns, halves, lead;
};

// Sums are those of a warp's products that are on their way, [columns][rows].
struct Sums {
  float *c[wave_lanes];
  u32 tiles, group;
  std::vector<float> sum;
};
// Registers are operands of products that are on their way, which have to stay as they are.
struct Registers {
  const u32 *a[wave_lanes];
  u32 value[wave_lanes][4];
  u32 group;
};
struct Read {
  Tile tile;
  u32 group;
};
struct Warp {
  std::vector<Sums> sums;
  std::vector<Registers> registers;
  std::vector<Read> reads;
  size_t steps; // of its warpgroup's
};
Warp warps[max_waves];

// Step is a product or a wait of a warpgroup: its warps have to take the same ones.
struct Step {
  u64 what;
  const char *file;
  int line;
};
std::vector<Step> steps[max_waves]; // by the first warp of the warpgroup

// Order is what a lane did between products.
struct Order {
  bool fenced;
  u32 groups; // that it has committed
};
Order orders[max_lanes];

u64 mix(u64 a, u64 b) { return (a ^ b) * 0x9E3779B97F4A7C15ull >> 7; }

// tile_of takes a descriptor apart, and refuses what the kernels do not use. A
// tile along k has so many lines.
Tile tile_of(u64 d, u32 lines, bool along_k, u32 columns, const Product &x) {
  u32 start = u32(d & 0x3fff) << 4, lead = u32(d >> 16 & 0x3fff) << 4, group = u32(d >> 32 & 0x3fff) << 4;
  const char *where = base_name(x.file);
  if (d >> 62 != 1 || d & 0x3fffc000c000c000) fail("product at %s:%d: descriptor %#llx is not of the 128-byte swizzle, or has other bits set", where, x.line, d);
  if (group != 1024) fail("product at %s:%d: groups of 8 lines that are %u bytes apart, not 1024", where, x.line, group);
  u32 within = along_k ? start & 0x7f : 0;
  if ((start - within) % 1024 || within % 32) fail("misaligned: product at %s:%d: the descriptor of a tile at shared address %#x, whose 8 lines do not begin on 1024 bytes", where, x.line, start);
  if (along_k) return {start - within, lines, 1u << within / 32, 1, 0};
  u32 halves = (columns + 63) / 64;
  if (halves > 1 && lead % 1024) fail("misaligned: product at %s:%d of halves that are %u bytes apart", where, x.line, lead);
  return {start, depth, 15, halves, lead};
}

// lines_of is where the tile's lines of a half lie.
const u8 *lines_of(const Tile &t, u32 half, const char *file, int line) { return shared_place(t.address + half * t.lead, t.lines * 128, "a product's read", file, line); }

// check tells the checker of a read of the tile.
void check_read([[maybe_unused]] const Tile &t, [[maybe_unused]] const char *file, [[maybe_unused]] int line) {
#ifdef CHECKED
  for (u32 half = 0; half < t.halves; half++) {
    const u8 *p = lines_of(t, half, file, line);
    if (t.columns == 15) {
      check::access_async(p, t.lines * 128);
      continue;
    }
    for (u32 l = 0; l < t.lines; l++)
      for (u32 c = 0; c < 4; c++)
        if (t.columns >> c & 1) check::access_async(p + l * 128 + (c ^ l / 2 % 4) * 32, 32);
  }
#endif
}

__m256 widen(const u8 *p) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)p)), 16)); }

// load_lines makes [lines][16] of a tile along k.
void load_lines(float *to, const Tile &t, const char *file, int line) {
  const u8 *p = lines_of(t, 0, file, line);
  u32 piece = u32(__builtin_ctz(t.columns)) * 2;
  for (u32 l = 0; l < t.lines; l++)
    for (u32 i = 0; i < 2; i++) _mm256_storeu_ps(to + l * depth + i * 8, widen(p + l * 128 + ((piece + i) ^ l % 8) * 16));
}

// load_columns makes [16][columns] of the other kind.
void load_columns(float *to, const Tile &t, u32 columns, const char *file, int line) {
  for (u32 half = 0; half < t.halves; half++) {
    const u8 *p = lines_of(t, half, file, line);
    u32 pieces = std::min(columns - half * 64, 64u) / 8;
    for (u32 k = 0; k < depth; k++)
      for (u32 i = 0; i < pieces; i++) _mm256_storeu_ps(to + k * columns + half * 64 + i * 8, widen(p + k * 128 + (i ^ k % 8) * 16));
  }
}

// multiply adds a·b to sum, [columns][16], in the order of k as operation_mma does:
// a is [k][16], b of column n and k at n·across + k·down.
void multiply(float *sum, const float *a, const float *b, u32 columns, u32 across, u32 down) {
  for (u32 n = 0; n < columns; n += 4) {
    __m256 s[4][2];
    for (u32 i = 0; i < 8; i++) s[i / 2][i % 2] = _mm256_loadu_ps(sum + (n + i / 2) * rows + i % 2 * 8);
    for (u32 k = 0; k < depth; k++) {
      __m256 low = _mm256_load_ps(a + k * rows), high = _mm256_load_ps(a + k * rows + 8);
      for (u32 i = 0; i < 4; i++) {
        __m256 v = _mm256_broadcast_ss(b + (n + i) * across + k * down);
        s[i][0] = _mm256_fmadd_ps(low, v, s[i][0]);
        s[i][1] = _mm256_fmadd_ps(high, v, s[i][1]);
      }
    }
    for (u32 i = 0; i < 8; i++) _mm256_storeu_ps(sum + (n + i / 2) * rows + i % 2 * 8, s[i / 2][i % 2]);
  }
}

// place_of is where element e of a lane's tile j of sums lies in [columns][rows].
u32 place_of(u32 lane, u32 j, u32 e) { return (j * 8 + lane % 4 * 2 + e % 2) * rows + lane / 4 + e / 2 * 8; }

// sums_of finds or begins the sums that a product adds to.
Sums &sums_of(Warp &w, const Product &x, u32 group) {
  for (Sums &s : w.sums) {
    if (s.c[0] != x.c[0]) continue;
    if (s.tiles != x.tiles) fail("product at %s:%d of %u columns: products of %u columns have the same sums on their way", base_name(x.file), x.line, x.tiles * 8, s.tiles * 8);
    s.group = group;
    if (!x.add) std::fill(s.sum.begin(), s.sum.end(), 0.0f);
    return s;
  }
  Sums &s = w.sums.emplace_back();
  s.tiles = x.tiles;
  s.group = group;
  s.sum.resize(x.tiles * 8 * rows);
  for (u32 lane = 0; lane < wave_lanes; lane++) {
    s.c[lane] = x.c[lane];
    for (u32 i = 0; x.add && i < x.tiles * 4; i++) s.sum[place_of(lane, i / 4, i % 4)] = x.c[lane][i];
    memset(x.c[lane], 0xff, x.tiles * 4 * sizeof(float));
  }
  return s;
}

// read notes a read of the tile by a product of the group.
void read(Warp &w, const Tile &t, u32 group, const Product &x) {
  check_read(t, x.file, x.line);
  if (!w.reads.empty()) {
    Read &last = w.reads.back();
    if (last.group == group && last.tile.address == t.address && last.tile.lines == t.lines && last.tile.halves == t.halves) {
      last.tile.columns |= t.columns;
      return;
    }
  }
  w.reads.push_back({t, group});
}

// together compares a step with that of the warpgroup's other warps.
void together(Wave &w, u64 what, const char *file, int line) {
  u32 warp = current->index / wave_lanes;
  if ((warp / 4 + 1) * 4 * wave_lanes > group.lanes) fail("product at %s:%d by a warp that is of no whole warpgroup", base_name(file), line);
  auto &all = steps[w.index - warp % 4];
  size_t &mine = warps[w.index].steps;
  if (mine == all.size()) all.push_back({what, file, line});
  else if (all[mine].what != what) fail("divergence: the warps of a warpgroup start different products: number %zu of this warp is at %s:%d, that of another at %s:%d", mine + 1, base_name(file), line, base_name(all[mine].file), all[mine].line);
  mine++;
}

void join([[maybe_unused]] Wave &w) {
#ifdef CHECKED
  uint32_t all = ~0u;
  check::join(w.index, &all, 1, of_all);
#endif
}

u64 hash(const Product &x) { return mix(mix(mix(x.a[0] ? 1 : x.a_tile, x.b_tile), x.tiles), x.b_rows * 2 + x.add); }

void operation_product(Wave &w) {
  auto &x = *(Product *)w.operands();
  Order *order = orders + w.lanes->number;
  u32 warp = current->index / wave_lanes, group = order->groups, columns = x.tiles * 8;
  Warp &mine = warps[w.index];
  for (u32 lane = 0; lane < wave_lanes; lane++)
    if (!order[lane].fenced) fail("product at %s:%d: no products_fence() since the start or the last products_wait()", base_name(x.file), x.line);
  together(w, hash(x), x.file, x.line);

  alignas(32) static float a[depth * rows], b[256 * depth];
  if (x.a[0]) {
    check::reads_over(); // all lanes have their registers: nothing that the warp does later comes before what they read for them
    Registers &r = mine.registers.emplace_back();
    r.group = group;
    for (u32 lane = 0; lane < wave_lanes; lane++) {
      r.a[lane] = x.a[lane];
      memcpy(r.value[lane], x.a[lane], sizeof r.value[lane]);
      for (u32 i = 0; i < 4; i++) {
        float *to = a + (lane % 4 * 2 + i / 2 * 8) * rows + lane / 4 + i % 2 * 8;
        to[0] = __builtin_bit_cast(float, r.value[lane][i] << 16);
        to[rows] = __builtin_bit_cast(float, r.value[lane][i] & 0xffff0000);
      }
    }
  } else {
    Tile t = tile_of(x.a_tile, 64, true, 0, x);
    t.address += warp % 4 * rows * 128;
    t.lines = rows;
    read(mine, t, group, x);
    float lines[rows * depth];
    load_lines(lines, t, x.file, x.line);
    for (u32 i = 0; i < rows * depth; i++) a[i % depth * rows + i / depth] = lines[i];
  }
  Tile t = tile_of(x.b_tile, columns, !x.b_rows, columns, x);
  // Who reads b is the whole warpgroup: its warps take turns in being seen to.
  if (warp % 4 == group % 4) read(mine, t, group, x);
  if (x.b_rows) load_columns(b, t, columns, x.file, x.line);
  else load_lines(b, t, x.file, x.line);
  Sums &s = sums_of(mine, x, group);
  multiply(s.sum.data(), a, b, columns, x.b_rows ? 1 : depth, x.b_rows ? columns : 1);
}

void operation_wait(Wave &w) {
  Wait x = *(Wait *)w.operands();
  Order *order = orders + w.lanes->number;
  u32 groups = order->groups;
  Warp &mine = warps[w.index];
  const char *where = base_name(x.file);
  together(w, mix(x.newest + 2, groups), x.file, x.line);
  auto over = [&](u32 group) { return group + x.newest < groups; };
  for (Sums &s : mine.sums) {
    if (s.group == groups) fail("products_wait at %s:%d: products were started, and not committed", where, x.line);
    if (!over(s.group)) continue;
    for (u32 lane = 0; lane < wave_lanes; lane++)
      for (u32 i = 0; i < s.tiles * 4; i++) {
        if (__builtin_bit_cast(u32, s.c[lane][i]) != hidden) fail("products_wait at %s:%d: thread %u wrote to sums of products that were on their way", where, x.line, w.lanes[lane].index);
        s.c[lane][i] = s.sum[place_of(lane, i / 4, i % 4)];
      }
  }
  for (const Registers &r : mine.registers)
    for (u32 lane = 0; over(r.group) && lane < wave_lanes; lane++)
      if (memcmp(r.a[lane], r.value[lane], sizeof r.value[lane])) fail("products_wait at %s:%d: thread %u wrote to registers that products on their way read", where, x.line, w.lanes[lane].index);
  for (const Read &r : mine.reads)
    if (over(r.group)) check_read(r.tile, x.file, x.line);
  std::erase_if(mine.sums, [&](const Sums &s) { return over(s.group); });
  std::erase_if(mine.registers, [&](const Registers &r) { return over(r.group); });
  std::erase_if(mine.reads, [&](const Read &r) { return over(r.group); });
  for (u32 lane = 0; lane < wave_lanes; lane++) order[lane].fenced = false;
  join(w); // a lane that goes on speaks for all: the products that they waited for are over
}

} // namespace

void product(float *c, u32 tiles, const u32 *a, u64 a_tile, u64 b_tile, bool b_rows, bool add, const char *file, int line) {
  Lane *me = current;
  auto &x = *(Product *)me->wave->operands();
  x.c[me->lane] = c;
  x.a[me->lane] = a;
  x.a_tile = a_tile;
  x.b_tile = b_tile;
  x.tiles = tiles;
  x.b_rows = b_rows;
  x.add = add;
  x.file = file;
  x.line = line;
  follow(mix(mix(mix(a ? 1 : a_tile, b_tile), tiles), b_rows * 2 + add));
  meet(operation_product, file, line);
}

void products_fence(const char *file, int line) {
  at(file, line);
  follow(mix(1, u64(line)));
  orders[current->number].fenced = true;
}

void products_commit(const char *file, int line) {
  at(file, line);
  follow(mix(2, u64(line)));
  orders[current->number].groups++;
}

void products_wait(u32 newest, const char *file, int line) {
  *(Wait *)current->wave->operands() = {newest, file, line};
  follow(mix(3, newest));
  meet(operation_wait, file, line);
}

void forget_products(unsigned lanes) {
  for (u32 i = 0; i < max_waves; i++) { // what a launch that failed left, too
    warps[i].sums.clear();
    warps[i].registers.clear();
    warps[i].reads.clear();
    warps[i].steps = 0;
    steps[i].clear();
  }
  memset(orders, 0, lanes * sizeof *orders);
}

const char *products_end() {
  for (u32 first = 0; first < max_waves; first++) {
    if (!warps[first].sums.empty()) return "products are on their way when their threads end";
    for (u32 i = 0; !steps[first].empty() && i < 4; i++)
      if (warps[first + i].steps != steps[first].size()) return "divergence: the warps of a warpgroup start different numbers of products";
  }
  return nullptr;
}

} // namespace emulator
