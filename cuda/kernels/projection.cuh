// What a launch of project.cuh computes.
#pragma once
#include "packed.cuh"

constexpr u32 projectThreads = 256, tileOutputs = 256;

// Projection is what a launch computes; the same for every block.
struct Projection {
  const u8 *weights[3];
  float *f32[3];
  u16 *bf16[3];
  const float *bias[3];
  u32 out[3];
  u32 add;   // bit i: add to f32[i]
  u32 gated; // weights 0 and 1 are gate and up of one result
  const u16 *x;
  u32 in, rows, granule, shift, stages;
  float *partials;
  u32 *tickets;
};

// Tile is 256 outputs: of one weight, or 128 of each of gate and up.
struct Tile {
  u32 weight, first; // first output
};

DEV u32 tilesOf(const Projection &p, u32 i) { return (p.out[i] + tileOutputs - 1) / tileOutputs; }
DEV u32 tileCount(const Projection &p) {
  return p.gated ? (p.out[0] + tileOutputs / 2 - 1) / (tileOutputs / 2) : tilesOf(p, 0) + tilesOf(p, 1) + tilesOf(p, 2);
}
DEV Tile tileAt(const Projection &p, u32 tile) {
  if (p.gated) return {0, tile * (tileOutputs / 2)};
  u32 a = tilesOf(p, 0), b = a + tilesOf(p, 1);
  if (tile < a) return {0, tile * tileOutputs};
  if (tile < b) return {1, (tile - a) * tileOutputs};
  return {2, (tile - b) * tileOutputs};
}
// of picks without indexing, which would put the arrays into memory.
template <class T> DEV T of(const T (&v)[3], u32 i) { return i == 0 ? v[0] : i == 1 ? v[1] : v[2]; }
