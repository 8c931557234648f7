// Projections of a mixture of experts: rows of x by the weights of those experts that
// chose them. A threadgroup has a block of 32 outputs of one expert, and takes its rows 8
// at a time, with the tile and the order of sums of project.h.metal: a row's bits do not
// depend on which other rows have the expert. Weights come from memory once, for up to 8
// rows; a decode step has fewer of them for almost every expert, and so have 128 rows
// of a prompt on average (8 of 128 experts).
#include "project.h.metal"

// Pairs are rows that have an expert: number i of the list is pair row · k + place, whose
// result goes to that row of dst. x has a row for per pairs.
struct Pairs {
  device const uint* list;
  uint count, per;
};
inline uint x_row(Pairs rows, uint i) { return rows.list[min(i, rows.count - 1)] / rows.per; }
inline uint dst_row(Pairs rows, uint i) { return rows.list[i]; }
inline bool has_row(Pairs rows, uint i) { return i < rows.count; }

struct ExpertParams {
  uint per; // pairs of a row of x
};

// Where an expert's weights lie, from where their buffers begin: data of weight 0 and of
// weight 1 in bytes, scales in elements, biases in elements. An expert whose weights lie
// in other buffers is nowhere: another dispatch has it.
constant constexpr uint place_words = 6;
constant constexpr ulong nowhere = ~0ul;

// A slot is an expert, its first pair in the list, and how many it has: none where fewer
// experts have rows than there are slots.
constant constexpr uint slot_words = 3;

// Grid: blocks of outputs, slots. ProjectParams are those of one weight, or of gate and up
// side by side; its rows are not used.
template <typename F, typename X, bool wide>
kernel void experts(device const X* x [[buffer(0)]], device const uchar* data0 [[buffer(1)]], device const uchar* data1 [[buffer(2)]],
                    device const ushort* scales0 [[buffer(3)]], device const ushort* scales1 [[buffer(4)]],
                    device const ushort* biases0 [[buffer(5)]], device const ushort* biases1 [[buffer(6)]],
                    device const ulong* places [[buffer(7)]], device const uint* slots [[buffer(8)]],
                    device const uint* list [[buffer(9)]], device float* dst [[buffer(10)]], constant ProjectParams& p [[buffer(11)]],
                    constant ExpertParams& e [[buffer(12)]], threadgroup float* lines [[threadgroup(0)]],
                    uint3 at [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  constexpr uint J = 4, T = 1, pitch = (8 * J + 8 * T) * line_floats;
  device const uint* slot = slots + at.y * slot_words;
  const uint count = slot[2];
  if (count == 0) return;
  device const ulong* place = places + slot[0] * place_words;
  if (place[0] == nowhere) return;
  Block b;
  b.w = Weights{data0 + place[0], scales0 + place[2], biases0 + place[4], p.in, p.group, wide};
  b.up = b.w;
  if (p.gated != 0) b.up = Weights{data1 + place[1], scales1 + place[3], biases1 + place[5], p.in, p.group, wide};
  b.bias = nullptr, b.up_bias = nullptr;
  b.dst = dst, b.out = p.out0, b.first = at.x * (p.gated != 0 ? 4 * J : 8 * J);
  threadgroup float* own = lines + simdgroup * pitch;
  for (uint done = 0; done < count; done += 8 * T) {
    const Pairs rows = {list + slot[1] + done, count - done, e.per};
    Tile<J, T> tile;
    clear_tile(tile);
    tile_product<F, X, J, T, 1, wide>(tile, b, x, p, rows, simdgroup, simdgroups, own, own + 8 * J * line_floats, 0, 0, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    keep_sums(own, tile);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    finish_sums<J, T>(b, p, lines, simdgroups, pitch, rows, simdgroup * 32 + lane, simdgroups * 32);
    threadgroup_barrier(mem_flags::mem_threadgroup); // the next rows' lines come where these sums are
  }
}

// EXPERTS_KERNELS instantiates the kernels of a format for both types of x,
// EXPERTS_RAGGED that of rows of floats which are not wide, and stay in f32.
#define EXPERTS_KERNEL(name, ...) template [[host_name(name)]] kernel decltype(experts<__VA_ARGS__>) experts<__VA_ARGS__>;
#define EXPERTS_KERNELS(F, format)                         \
  EXPERTS_KERNEL("experts_" format "_f32", F, float, true) \
  EXPERTS_KERNEL("experts_" format "_bf16", F, bfloat, true)
#define EXPERTS_RAGGED(F, format) EXPERTS_KERNEL("experts_ragged_" format "_f32", F, float, false)
