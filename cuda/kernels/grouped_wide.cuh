// Experts' projections of many rows on compute capability 9.0 by wgmma: what grouped.cuh
// makes, with its bits, and, with inputs in parts, what experts.cuh makes, with its bits.
// Weights become bf16 in registers, as dequantise rounds them, and are the A operands: of one
// chain over all inputs, or of one for each part of them, whose sums are added in their order.
//
// An item is 128 rows of weights a warpgroup (64 outputs of gate and up, or 128 of down) of an
// expert by up to T * 8 of the rows that chose it. A warp has two strips, a gate's and the up's
// of the same outputs, or two of down, and a ring for their weights, which it fills by the
// copy unit. One more warpgroup gathers rows into a ring of its own: the copy unit cannot. A
// block stays for its items, one after the other: what the next one needs is on its way while
// this one is stored. A kernel has one T: with several, ptxas lets no two products overlap.
#pragma once
#include "chain.cuh"
#include "experts.cuh"

template <class W, bool gated, u32 T, u32 warpgroups, bool inParts> struct GroupedWide {
  static constexpr u32 mostRows = T * 8, warps = warpgroups * 4, slots = 4; // slots of a warp's ring of weights, 128 inputs each
  static constexpr u32 unit = mostRows * 128, stage = 2 * unit; // bytes of 64 inputs of the rows, and of 128
  static constexpr u32 perGranule = W::inputs / 64;
  static_assert(!inParts || !W::rounds || perGranule == 2);      // a stage of weights that are rounded is a granule
  static constexpr bool scaled = inParts && !W::rounds;         // scales are applied to sums
  static constexpr u32 folds = 64 / W::fold, steps = W::fold / 16; // of 64 inputs; of a fold
  static constexpr bool takesSums = scaled && W::sums;          // of inputs, over each fold
  static constexpr u32 foldSums = takesSums ? 2 * folds * mostRows : 0; // floats of a stage
  static constexpr u32 outputs = warps * (gated ? 16 : 32); // of an item

  const Mixture &p;
  u32 list; // where the tiles of rows are listed, in words
  u32 count, across; // items, and those of a tile of rows
  u32 warp, lane;
  u32 barriers, rows, weights;
  const u8 *weightsAt;
  float *foldAt;
  u32 pairBytes, depth, pairs; // of 128 inputs of a strip; granules of a strip; stages of an item

  METHOD u32 full(u32 at) const { return barriers + at * 8; }
  METHOD u32 empty(u32 at) const { return barriers + 64 + at * 8; }
  METHOD u32 there(u32 slot) const { return barriers + 128 + (warp * slots + slot) * 8; }

  // Of a tile: expert, first pair, rows.
  METHOD u32x4 tileOf(u32 item) const { return *(const u32x4 *)(p.tables + list + item / across * 4); }
  METHOD u32 stripOf(u32 item) const { return (item % across * warps + warp) * (gated ? 1 : 2); }

  // sumFolds makes the sums of a stage's inputs over each fold: products with ones, the same in
  // every row of a result.
  METHOD void sumFolds(u32 at) const {
    float *to = foldAt + at * foldSums;
    const u32 from = rows + at * stage + lane % 8 * 128;
    UNROLL for (u32 i = 0; i < (T + 3) / 4; i++) {
      const u32 nt = i * 4 + warp - warps;
      if (T % 4 != 0 && nt >= T) break;
      UNROLL for (u32 half = 0; half < 2; half++) {
        u32 b[2][4];
        float acc[folds][4] = {};
        u32 one[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
        UNROLL for (u32 j = 0; j < 2; j++) load_matrix_at(b[j], from + half * unit + nt * 1024 + (((j * 4 + lane / 8) ^ lane % 8) << 4));
        UNROLL for (u32 k = 0; k < 4; k++) mma_bf16(acc[k / steps], one, {b[k / 2][k % 2 * 2], b[k / 2][k % 2 * 2 + 1]});
        if (lane / 4 == 0)
          UNROLL for (u32 f = 0; f < folds; f++) *(f32x2 *)(to + (half * folds + f) * mostRows + nt * 8 + lane % 4 * 2) = f32x2{acc[f][0], acc[f][1]};
      }
    }
  }

  // gather fills the ring of rows: eight threads a line, each sixteenth line. Copies of two
  // stages are on their way while a third's are waited for.
  METHOD void gather() const {
    const u32 line0 = (warp - warps) * 4 + lane / 8, chunk = lane % 8;
    constexpr u32 each = (mostRows + 15) / 16;
    Ring at{p.stages}, told{p.stages};
    constexpr u32 ahead = 2;
    u32 untold = 0; // stages
    auto tell = [&]() INLINE {
      if constexpr (takesSums) {
        sync_group(1, 128); // all copies of the stage are there
        sumFolds(told.stage);
      }
      proxy_fence();
      arrive(full(told.stage), true);
      told.next();
    };
    _Pragma("nounroll") for (u32 item = bid(); item < count; item += gdim()) {
      const u32x4 tile = tileOf(item);
      const u16 *from[each];
      UNROLL for (u32 j = 0; j < each; j++) {
        const u32 row = line0 + j * 16;
        from[j] = row < tile.z ? p.x + (u64)(p.pairs[tile.y + row] / p.k) * p.in + chunk * 8 : nullptr;
      }
      _Pragma("nounroll") for (u32 pair = 0; pair < pairs; pair++) {
        wait_phase(empty(at.stage), at.phase ^ 1);
        UNROLL for (u32 half = 0; half < 2; half++)
          UNROLL for (u32 j = 0; j < each; j++) {
            const u32 row = line0 + j * 16, k = pair * 128 + half * 64;
            if (mostRows % 16 != 0 && row >= mostRows) break;
            const bool here = from[j] && k + chunk * 8 < p.in;
            copy_to(rows + at.stage * stage + half * unit + row * 128 + ((chunk ^ row % 8) << 4), here ? from[j] + k : p.x, here);
          }
        copy_commit();
        copy_wait<ahead>();
        if (untold == ahead) tell();
        else untold++;
        at.next();
      }
    }
    copy_wait<0>();
    _Pragma("nounroll") for (; untold > 0; untold--) tell();
  }

  // Ahead is which weights are copied next.
  struct Ahead {
    u32 item, pair = 0;
    const u8 *source[2];
  };
  METHOD void aim(Ahead &a) const {
    if (a.item >= count) return;
    const u32 expert = tileOf(a.item).x, strips = (p.out + 15) / 16;
    UNROLL for (u32 j = 0; j < 2; j++) {
      u32 strip = stripOf(a.item) + (gated ? 0 : j);
      if (strip >= strips) strip = strips - 1; // multiplied, and dropped
      a.source[j] = (const u8 *)p.weights[j][expert] + (u64)strip * depth * p.granule;
    }
  }
  METHOD void copyNext(Ahead &a, u32 slot) const {
    if (a.item >= count) return;
    const u32 done = a.pair * pairBytes, rest = depth * p.granule - done, bytes = rest < pairBytes ? rest : pairBytes, to = weights + slot * 2 * pairBytes;
    copy_bulk(to, a.source[0] + done, bytes, there(slot), 2 * bytes);
    copy_more(to + pairBytes, a.source[1] + done, bytes, there(slot));
    if (++a.pair == pairs) {
      a.pair = 0, a.item += gdim();
      aim(a);
    }
  }

  // work multiplies an item.
  METHOD void work(u32 item, const u32x4 &tile, Ring &at, Ring &mine, Ahead &next) const {
    float sum[2][T][4];
    u32 a[2][4][4];
    UNROLL for (u32 i = 0; i < T * 8; i++) sum[i / 4 / T][i / 4 % T][i % 4] = -0.f; // which leaves the bits of what is added
    u32 pair = 0;
    _Pragma("nounroll") for (u32 part = 1; part <= (inParts ? p.parts : 1); part++) {
      float c[2][T][4] = {};
      u32 before = p.stages; // the stage whose products may not be over: none
      _Pragma("nounroll") for (const u32 end = inParts ? part * depth / p.parts : pairs; pair < end; pair++) {
        wait_phase(there(mine.stage), mine.phase);
        wait_phase(full(at.stage), at.phase);
        const u8 *low = weightsAt + mine.stage * 2 * pairBytes;
        const u32 x = descriptor_low(rows + at.stage * stage);
        UNROLL for (u32 half = 0; half < 2; half++)
          UNROLL for (u32 j = 0; j < 2; j++) {
            products_wait<1>(); // that of these operands
            if (half == 0 && j == 1) arrive(empty(before), lane == 0 && before < p.stages);
            const u8 *granule = low + j * pairBytes + (perGranule == 1 ? half * p.granule : 0);
            rounded<W>(a[j], granule, perGranule == 1 ? 0 : half, p.shift, lane);
            if (perGranule == 1 && half == 1 && pair * 2 + 1 >= depth) zero(a[j]); // what was there before
            chain(c[j], a[j], descriptor_of(x + half * (unit >> 4)));
          }
        copyNext(next, mine.stage);
        before = at.stage;
        at.next();
        mine.next();
      }
      products_wait<0>(c[0]);
      products_wait<0>(c[1]);
      arrive(empty(before), lane == 0 && before < p.stages);
      UNROLL for (u32 i = 0; i < T * 8; i++) sum[i / 4 / T][i / 4 % T][i % 4] += c[i / 4 / T][i / 4 % T][i % 4];
    }
    store(item, tile, sum);
  }

  // multiplyScaled adds the products of 64 inputs, half of a stage, to total, fold by fold.
  METHOD void multiplyScaled(float (&total)[2][T][4], const u8 *granules, u32 bytes, u32 block, u32 x, const float *sums) const {
    u32 w[2][4][4];
    UNROLL for (u32 j = 0; j < 2; j++) {
      const typename W::Numbers numbers = W::load(granules + j * bytes, block, lane);
      UNROLL for (u32 k = 0; k < 4; k++) W::decode(w[j][k], numbers, k);
    }
    UNROLL for (u32 f = 0; f < folds; f++) {
      float acc[2][T][4];
      UNROLL for (u32 j = 0; j < 2; j++) {
        products_fence();
        UNROLL for (u32 k = f * steps; k < f * steps + steps; k++) product(acc[j], w[j][k], descriptor_of(x + k * 2), k > f * steps);
        products_commit();
      }
      UNROLL for (u32 j = 0; j < 2; j++) {
        Affine scale = W::scales(granules + j * bytes, block * folds + f, p.shift, lane / 4);
        UNROLL for (u32 i = 0; i < 2; i++) scale.bias[i] = fma(scale.scale[i], -(float)W::offset, scale.bias[i]);
        if (j == 0) products_wait<1>(acc[0]);
        else products_wait<0>(acc[1]);
        UNROLL for (u32 nt = 0; nt < T; nt++) {
          f32x2 of{};
          if constexpr (takesSums) of = *(const f32x2 *)(sums + f * mostRows + nt * 8);
          UNROLL for (u32 e = 0; e < 4; e++) {
            float &to = total[j][nt][e];
            to = fma(scale.scale[e / 2], acc[j][nt][e], to);
            if constexpr (takesSums) to = fma(scale.bias[e / 2], e % 2 ? of.y : of.x, to);
          }
        }
      }
    }
  }

  // workScaled is work by weights whose scales are applied to sums. A part may end within a stage.
  METHOD void workScaled(u32 item, const u32x4 &tile, Ring &at, Ring &mine, Ahead &next) const {
    float sum[2][T][4], total[2][T][4] = {};
    UNROLL for (u32 i = 0; i < T * 8; i++) sum[i / 4 / T][i / 4 % T][i % 4] = -0.f; // which leaves the bits of what is added
    u32 part = 1, granule = 0;
    _Pragma("nounroll") for (u32 pair = 0; pair < pairs; pair++) {
      wait_phase(there(mine.stage), mine.phase);
      wait_phase(full(at.stage), at.phase);
      const u8 *low = weightsAt + mine.stage * 2 * pairBytes;
      const u32 x = descriptor_low(rows + at.stage * stage);
      const float *sums = foldAt + at.stage * foldSums + lane % 4 * 2;
      UNROLL for (u32 half = 0; half < 2; half++) {
        if (perGranule == 1 && half == 1 && granule == depth) break;
        multiplyScaled(total, low + (perGranule == 1 ? half * p.granule : 0), pairBytes, perGranule == 1 ? 0 : half, x + half * (unit >> 4), sums + half * folds * mostRows);
        if (perGranule == 2 && half == 0) continue;
        if (++granule == part * depth / p.parts) {
          UNROLL for (u32 i = 0; i < T * 8; i++) {
            sum[i / 4 / T][i / 4 % T][i % 4] += total[i / 4 / T][i / 4 % T][i % 4];
            total[i / 4 / T][i / 4 % T][i % 4] = 0;
          }
          part++;
        }
      }
      if (takesSums) sync_warp(); // all lanes have read the sums
      arrive(empty(at.stage), lane == 0);
      copyNext(next, mine.stage);
      at.next();
      mine.next();
    }
    store(item, tile, sum);
  }

  // store stores what was made of an item.
  METHOD void store(u32 item, const u32x4 &tile, const float (&sum)[2][T][4]) const {
    const u32 first = stripOf(item) * 16 + lane / 4;
    UNROLL for (u32 nt = 0; nt < T; nt++)
      UNROLL for (u32 column = 0; column < 2; column++) {
        const u32 row = nt * 8 + lane % 4 * 2 + column;
        if (row >= tile.z) continue;
        const u64 to = (u64)p.pairs[tile.y + row] * p.out;
        UNROLL for (u32 half = 0; half < 2; half++) {
          const u32 i = half * 2 + column, m = first + half * 8;
          const float v = whole_sum<W>(sum[0][nt][i], half), w = whole_sum<W>(sum[1][nt][i], half);
          if constexpr (gated) {
            if (m < p.out) p.bf16[to + m] = (u16)pack_bf16(silu(v) * w, 0);
          } else {
            if (m < p.out) p.f32[to + m] = v;
            if (m + 16 < p.out) p.f32[to + m + 16] = w;
          }
        }
      }
  }

  METHOD void multiply() const {
    Ring at{p.stages}, mine{slots};
    Ahead next{bid()};
    aim(next);
    _Pragma("nounroll") for (u32 slot = 0; slot < slots; slot++) copyNext(next, slot);
    _Pragma("nounroll") for (u32 item = bid(); item < count; item += gdim()) {
      if constexpr (scaled) workScaled(item, tileOf(item), at, mine, next);
      else work(item, tileOf(item), at, mine, next);
    }
  }
};

template <class W, bool gated, u32 T, u32 warpgroups, bool inParts> DEV void grouped_wide(const Mixture &p, u8 *shared, u32 list) {
  using G = GroupedWide<W, gated, T, warpgroups, inParts>;
  launch_dependents();
  G y{p, list};
  y.warp = shfl(tid() / 32, 0);
  y.lane = tid() % 32;
  y.depth = (p.in + W::inputs - 1) / W::inputs;
  y.pairs = (y.depth * G::perGranule + 1) / 2;
  y.pairBytes = 2 / G::perGranule * p.granule;
  // Barriers, and then the rings: of rows, on 1024 bytes, and of weights.
  y.barriers = (shared_address(shared) + 1023) / 1024 * 1024;
  y.rows = y.barriers + 1024;
  const u32 folds = 1024 + p.stages * G::stage, offset = folds + p.stages * G::foldSums * 4 + y.warp * G::slots * 2 * y.pairBytes;
  y.foldAt = (float *)(shared + (y.barriers - shared_address(shared)) + folds);
  y.weights = y.barriers + offset;
  y.weightsAt = shared + (y.barriers - shared_address(shared)) + offset;
  const bool multiplies = y.warp < G::warps;
  if (tid() == 0) {
    _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) {
      barrier_init(y.full(i), 128);
      barrier_init(y.empty(i), G::warps);
    }
  }
  if (multiplies && elected()) {
    UNROLL for (u32 i = 0; i < G::slots; i++) barrier_init(y.there(i), 1);
  }
  barriers_made();
  dependency_wait();
  y.across = (p.out + G::outputs - 1) / G::outputs;
  y.count = p.tables[1] * y.across; // of all tiles
  sync();
  if (multiplies) {
    more_registers<warpgroups == 2 ? 224 : 152>();
    y.multiply();
  } else {
    fewer_registers<56>();
    y.gather();
  }
}

// Kernels of T * 8 rows and so many warpgroups: family is grouped_wide or, in parts, grouped_parts.
#define GROUPED(family, inParts, name, W, T, warpgroups)                                                                                         \
  HOPPER_KERNEL(warpgroups * 128 + 128)                                                                                                          \
  void family##_gated_##name##_##T(const u64 *gate, const u64 *up, const u16 *x, u16 *dst, const u32 *tables, const u32 *pairs, u32 in, u32 out, \
                                   u32 granule, u32 shift, u32 stages, u32 parts, u32 k, u32 list) {                                             \
    DYNAMIC_SHARED(family##_gated_##name##_##T, shared);                                                                                         \
    const Mixture p{{gate, up}, x, dst, nullptr, tables, pairs, in, out, granule, shift, stages, parts, k};                                      \
    grouped_wide<W, true, T, warpgroups, inParts>(p, shared, list);                                                                              \
  }                                                                                                                                              \
  REGISTER(family##_gated_##name##_##T)                                                                                                          \
  HOPPER_KERNEL(warpgroups * 128 + 128)                                                                                                          \
  void family##_down_##name##_##T(const u64 *down, const u16 *x, float *dst, const u32 *tables, const u32 *pairs, u32 in, u32 out, u32 granule,  \
                                  u32 shift, u32 stages, u32 parts, u32 k, u32 list) {                                                           \
    DYNAMIC_SHARED(family##_down_##name##_##T, shared);                                                                                          \
    const Mixture p{{down, down}, x, nullptr, dst, tables, pairs, in, out, granule, shift, stages, parts, k};                                    \
    grouped_wide<W, false, T, warpgroups, inParts>(p, shared, list);                                                                             \
  }                                                                                                                                              \
  REGISTER(family##_down_##name##_##T)

// Those that cuda/launch/experts_grouped.go chooses from: groupedTiles, and groupedPartTiles.
#define GROUPED_WIDE(name, W, warpgroups)               \
  GROUPED(grouped_wide, false, name, W, 2, warpgroups)  \
  GROUPED(grouped_wide, false, name, W, 4, warpgroups)  \
  GROUPED(grouped_wide, false, name, W, 6, warpgroups)  \
  GROUPED(grouped_wide, false, name, W, 9, warpgroups)
#define GROUPED_PARTS(name, W, warpgroups)              \
  GROUPED(grouped_parts, true, name, W, 1, warpgroups)  \
  GROUPED(grouped_parts, true, name, W, 2, warpgroups)  \
  GROUPED(grouped_parts, true, name, W, 4, warpgroups)
