// What the attention kernels of compute capability 9.0 share: tiles of lines of 128
// numbers in bf16, as wgmma reads them.
#pragma once
#include "attend.cuh"
#include "hopper.cuh"

// copy_piece copies 16 bytes, piece 0 to 15 of a line of 128 elements, to
// its place in the swizzle: lines of 128 bytes, the second halves, which HALF bytes
// have, behind all first ones, pieces turned by the line's number.
template <u32 HALF> DEV void copy_piece(u32 to, u32 line, u32 piece, const void *from, bool there) {
  copy_to(to + piece / 8 * HALF + line * 128 + (piece % 8 ^ line % 8) * 16, from, there);
}
// written shows what this thread's copies wrote to wgmma of others, once the
// barrier is passed.
DEV void written(u32 barrier) {
  proxy_fence();
  arrive(barrier, true);
}

// hide masks the scores of the tile that starts at slot: the rows are those of
// two indices. The warp is whole again behind it.
template <int TILES> DEV void hide(float (&x)[TILES][4], const View &view, u32 slot, const u32 (&index)[2]) {
  if (view.window == 0) { // slots are indices
    const u32 first = slot + tid() % 4 * 2;
    UNROLL for (int n = 0; n < TILES; n++)
      UNROLL for (int j = 0; j < 2; j++) {
        x[n][j] = first + n * 8 + j > index[0] ? NONE : x[n][j];
        x[n][2 + j] = first + n * 8 + j > index[1] ? NONE : x[n][2 + j];
      }
    return;
  }
  UNROLL for (int n = 0; n < TILES; n++)
    UNROLL for (int j = 0; j < 2; j++) {
      const Column c = column_of(view, slot + n * 8 + tid() % 4 * 2 + j);
      if (!sees(index[0], c)) x[n][j] = NONE;
      if (!sees(index[1], c)) x[n][2 + j] = NONE;
    }
  sync_warp();
}
