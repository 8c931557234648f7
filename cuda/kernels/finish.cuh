// Sums of strips whose inputs are split among sixteen warps, on compute capability 9.0: four more warps
// take them out of places in turn, in the order of the inputs, so that nobody waits for a strip to be
// added up.
//
// Blocks of a cluster write into each other's places, and tell each other that a place is empty, only
// where somebody there waits for it: none has left by then.
#pragma once
#include "hopper.cuh"
#include "strips.cuh"

constexpr u32 fewWorkers = 16, fewFinishers = 4, fewPlaces = 2;
constexpr u32 fewPart = 32 * 4; // floats that a warp leaves of a strip and 8 rows: four a lane

template <class W, u32 NT, u32 C> struct Finisher {
  static constexpr u32 team = fewWorkers / C; // slices of the inputs that a block of a cluster has
  static constexpr u32 part = NT * fewPart, place = fewWorkers * part; // floats of a strip: a slice's; all of them

  const Projection &p;
  StripList strips; // those that this block adds up
  u32 lane, rank;
  float *places;   // [fewPlaces, fewWorkers, NT, fewPart]
  u32 full, empty; // barriers of the places; [C, fewPlaces] of the cluster's places being empty

  // finish is one of the four: a thread has an output of a row of each tile, and of gates that of its other half.
  METHOD void finish() const {
    dependency_wait();
    const u32 t = tid() - fewWorkers * 32, first = t / 4 % 4 * 2 + t % 2, output = t / 16 + t % 4 / 2 * 8; // as a lane has them
    const float *from = places + t;
    u32 turn = 0, phase = 0;
    float gate[NT];
    _Pragma("nounroll") for (u32 strip = 0; strip < strips.count; strip++) {
      const Strip s = stripAt(p, strips.at(p, strip));
      const u32 m = s.first + output;
      const bool made = m < of(p.out, s.weight); // or the strip's end is beyond
      const u64 at = (u64)first * of(p.out, s.weight) + m, below = 8 * (u64)of(p.out, s.weight);
      if (C > 1 && t == 0) expect(full + turn * 8, (fewWorkers - team) * part * 4); // some of it may be there
      float before[NT], v[NT];
      UNROLL for (u32 n = 0; n < NT; n++) before[n] = made && n * 8 + first < p.rows && p.add >> s.weight & 1 ? of(p.f32, s.weight)[at + n * below] : 0;
      const float bias = made && of(p.bias, s.weight) ? of(p.bias, s.weight)[m] : 0;
      if constexpr (C == 1) wait_phase(full + turn * 8, phase);
      else wait_with(full + turn * 8, phase);
      const float *parts = from + turn * place;
      UNROLL for (u32 n = 0; n < NT; n++) {
        v[n] = parts[n * fewPart];
        UNROLL for (u32 w = 1; w < fewWorkers; w++) v[n] += parts[w * part + n * fewPart];
      }
      sync_warp();
      if constexpr (C == 1) arrive(empty + turn * 8, lane == 0);
      else arrive_at(empty + (rank * fewPlaces + turn) * 8, lane % C, lane < C && strip + fewPlaces < strips.count); // somebody waits for it
      if (++turn == fewPlaces) turn = 0, phase ^= 1;
      UNROLL for (u32 n = 0; n < NT; n++) {
        if (of(p.bias, s.weight)) v[n] += bias;
        if (!p.gated) continue;
        if (s.weight == 0) gate[n] = v[n];
        else v[n] = silu(gate[n]) * v[n];
      }
      if (p.gated && s.weight == 0) continue;
      const u32 to = p.gated ? 0 : s.weight;
      UNROLL for (u32 n = 0; n < NT; n++) {
        if (!made || n * 8 + first >= p.rows) continue;
        if (p.add >> to & 1) v[n] += before[n];
        if (float *f = of(p.f32, to)) f[at + n * below] = v[n];
        if (u16 *h = of(p.bf16, to)) h[at + n * below] = (u16)pack_bf16(v[n], 0);
      }
    }
  }
};
