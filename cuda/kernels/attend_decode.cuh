// The units of a block of decode attention, one after another (attend.cu, attend_few_hopper.cu):
// scores, probabilities, products with the values. What a unit comes to a sink takes.
#pragma once
#include "attend.cuh"

// index_of is the index of the row of a lane's query vector of a half; places past count take the first's.
DEV u32 index_of(const Work &w, int h) {
  const u32 n = h * 8 + tid() % 32 / 4;
  return w.base + (w.first + (n < w.count ? n : 0)) / w.group;
}

// each calls f(half, number of the query vector among all rows') for the lane's
// queries; index is that of their rows.
template <class F> DEV void each(const Work &w, const u32 (&index)[2], F f) {
  UNROLL for (int h = 0; h < 2; h++) {
    const u32 n = h * 8 + tid() % 32 / 4, row = index[h] - w.base;
    if (n < w.count) f(h, (w.row + row) * w.q_heads + w.head + w.first + n - row * w.group);
  }
}

// columns calls f(column, output tile, element, output tile, element) for the
// neighbouring columns that a lane has of row half h.
template <u32 DIM, int KV, class F> DEV void columns(int h, F f) {
  using L = Layout<DIM, KV>;
  const u32 t = tid() % 4, pair = warp_of() * L::PAIRS;
  UNROLL for (u32 n = 0; n < L::PAIRS; n++) {
    if (DIM % (16 * WARPS) != 0 && pair + n >= DIM / 16) break;
    const u32 at = (pair + n) * 16;
    if (KV == BF16) {
      f(at + 2 * t, 2 * n, 2 * h, 2 * n, 2 * h + 1);
      f(at + 8 + 2 * t, 2 * n + 1, 2 * h, 2 * n + 1, 2 * h + 1);
    } else {
      f(at + 4 * t, 2 * n, 2 * h, 2 * n + 1, 2 * h);
      f(at + 4 * t + 2, 2 * n, 2 * h + 1, 2 * n + 1, 2 * h + 1);
    }
  }
}

// Stored are the queries of decode where rotate_store has run: row 0, head 0 of the span and KV
// head, whose heads lie stride apart. Of other rows decode has queries, keys and values made.
struct Stored { const u16 *q; u32 stride; };
template <class S> static constexpr bool fresh = true;
template <> constexpr bool fresh<Stored> = false;

// decode goes through a block's units. sink(u, top, weight, part) is told of each, whoever has
// query vectors: of a lane's two halves of rows the maximum, in log2, the weight, and the sums.
template <u32 DIM, int KV, u32 TEAMS, class S, class Sink> DEV void decode(u8 *shared, const Work &w, const S &rows, float scale, Sink sink) {
  using L = Layout<DIM, KV>;
  constexpr u32 N = 2 * L::PAIRS;
  const u32 lane = tid() % 32, warp = warp_of();
  u8 *team = shared + L::TEAM + team_of() * L::BYTES;
  float *peaks = (float *)(team + L::PEAKS), *sums = (float *)(team + L::SUMS);
  // A block keeps 3 tiles in flight: the keys of units u and u + 1, and the values of u.
  auto tile_of = [&](u32 u, bool values) { return shared + (values ? L::VALUES : L::KEYS) + u % 2 * L::STAGE; };
  auto start = [&](u64 page, u32 u, bool values) {
    if (u < w.units) {
      u64 but = 0;
      if constexpr (fresh<S>) but = rows.lines(w.at(u));
      copy_tile<DIM, KV, TEAMS>(tile_of(u, values), page + (values ? w.values : w.keys), w.view.held - w.at(u) * UNIT, but);
    }
    copy_commit();
  };
  auto place = [&](u32 u, bool values) {
    if constexpr (fresh<S>)
      if (u < w.units) rows.place(shared, tile_of(u, values), w.at(u), values);
  };
  auto page_of = [&](u32 u) { return w.pages[u < w.units ? u * w.step : 0]; };
  u64 next = page_of(0), after = page_of(1);
  // Old keys and values are fetched before the kernel ahead has ended.
  const bool old = fresh<S> || (w.at(w.units < 2 ? w.units - 1 : 1) + 1) * UNIT <= w.written;
  if (!old) dependency_wait();
  start(next, 0, false);
  start(next, 0, true);
  start(after, 1, false);
  next = after;
  after = page_of(2);
  if constexpr (fresh<S>) rows.prepare(shared, team);
  if (old) dependency_wait();
  // A team without queries copies and keeps the barriers.
  const bool busy = w.count != 0;
  if constexpr (fresh<S>) {
    rows.make(shared, team, w);
    place(0, false);
    place(0, true);
    place(1, false);
  } else if (busy) {
    load_queries<DIM, KV>(team, rows.q, w.first, w.count, w.group, w.q_heads * rows.stride, rows.stride);
  }

  u32 index[2];
  UNROLL for (int h = 0; h < 2; h++) index[h] = index_of(w, h);

#pragma unroll 1
  for (u32 u = 0; u < w.units; u++) {
    copy_wait<2>();
    sync();
    float s[2][4];
    if (busy) {
      scores<DIM, KV>(s, shared + L::KEYS + u % 2 * L::STAGE, team);
      const u32 slot = w.at(u) * UNIT + warp * 16 + lane % 4 * 2;
      if (w.view.window != 0 || (w.at(u) + 1) * UNIT > w.base + 1) {
        UNROLL for (int n = 0; n < 2; n++)
          UNROLL for (int j = 0; j < 2; j++) {
            const Column column = column_of(w.view, slot + n * 8 + j);
            UNROLL for (int h = 0; h < 2; h++)
              if (!sees(index[h], column)) s[n][2 * h + j] = NONE;
          }
        sync_warp();
      }
      UNROLL for (int h = 0; h < 2; h++) {
        float peak = __builtin_fmaxf(__builtin_fmaxf(s[0][2 * h], s[0][2 * h + 1]), __builtin_fmaxf(s[1][2 * h], s[1][2 * h + 1]));
        peak = __builtin_fmaxf(peak, shfl_xor(peak, 1));
        peak = __builtin_fmaxf(peak, shfl_xor(peak, 2));
        if (lane % 4 == 0) peaks[warp * QUERIES + h * 8 + lane / 4] = peak;
      }
    }
    sync(); // the peaks are there; these keys, and the values before, are done with
    start(next, u + 1, true);
    place(u + 1, true);
    start(after, u + 2, false);
    place(u + 2, false);
    next = after;
    after = page_of(u + 3);

    float of[L::COPIES][2][2]; // scales of the values of this lane's slots
    copy_wait<3>();
    if (KV == INT8) {
      sync();
      const float *scales = (const float *)(shared + L::VALUES + u % 2 * L::STAGE + L::SCALES);
      UNROLL for (u32 g = 0; g < L::COPIES; g++)
        UNROLL for (int n = 0; n < 2; n++)
          UNROLL for (int j = 0; j < 2; j++) of[g][n][j] = scales[(warp * 16 + lane % 4 * 2 + n * 8 + j) * L::GROUPS + g];
    }
    float top[2];
    if (busy) {
      UNROLL for (int h = 0; h < 2; h++) {
        const u32 row = h * 8 + lane / 4;
        float peak = peaks[row];
        UNROLL for (u32 v = 1; v < WARPS; v++) peak = __builtin_fmaxf(peak, peaks[v * QUERIES + row]);
        top[h] = peak * scale;
        const float base = peak == NONE ? 0 : top[h];
        float sum = 0;
        UNROLL for (int n = 0; n < 2; n++) {
          float e[2];
          UNROLL for (int j = 0; j < 2; j++) e[j] = ex2(fma(s[n][2 * h + j], scale, -base));
          u8 *at = team + L::P + row * L::PLINE + (warp * 16 + n * 8 + lane % 4 * 2) * 2;
          if (KV == BF16) { // the weight is the sum of what the values are multiplied by
            const u32 pair = pack_bf16(e[0], e[1]);
            *(u32 *)at = pair;
            sum += low_bf16(pair) + high_bf16(pair);
          } else {
            UNROLL for (u32 g = 0; g < L::COPIES; g++) // the scale of a slot that was never written may be no number
              *(u32 *)(at + g * QUERIES * L::PLINE) = pack_bf16(e[0] == 0 ? 0 : e[0] * of[g][n][0], e[1] == 0 ? 0 : e[1] * of[g][n][1]);
            sum += e[0] + e[1];
          }
        }
        sum += shfl_xor(sum, 1);
        sum += shfl_xor(sum, 2);
        if (lane % 4 == 0) sums[warp * QUERIES + row] = sum;
      }
    }
    sync();
    if (!busy) continue;
    float part[N][4];
    weigh<DIM, KV>(part, shared + L::VALUES + u % 2 * L::STAGE, team + L::P);
    float weight[2];
    UNROLL for (int h = 0; h < 2; h++) {
      const u32 row = h * 8 + lane / 4;
      weight[h] = (sums[row] + sums[QUERIES + row]) + (sums[2 * QUERIES + row] + sums[3 * QUERIES + row]);
    }
    sink(u, top, weight, part);
  }
}
