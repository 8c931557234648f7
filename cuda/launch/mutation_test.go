package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"windrow/cuda/driver"
	"windrow/cuda/emulator"
	"windrow/emulation"
)

// fault is a single mistake in a kernel for compute capability 9.0, which the
// checked build must report in a self-test: most give the right numbers on a GPU,
// nearly always.
type fault struct {
	what     string
	file     string // of kernels
	from, to string // from stands once in the file, but for blanks at the beginnings of lines
	by       string // the self-test
}

const (
	byTiles   = "gemm: every tile, odd rows and tails"
	byFlash   = "prefill attention by wgmma"
	byLong    = "prefill attention of heads of 256 by wgmma"
	byUnits   = "decode attention by wgmma"
	byTiled   = "tiled/affine4-64"
	byScaled  = "tiled/q4_0"
	byOne     = "one/affine4-64"
	byWide    = "wide/affine4-64"
	byExperts = "experts/affine4-64"
	byRoute   = "route"
	byFew     = "few experts/affine4-64"
	byLines   = "few/affine4-64"
	byHeld    = "held/affine4-64"
	bySliced  = "sliced"
	byGrouped = "grouped experts/affine4-64"
	byFolds   = "grouped experts/affine8-64"
	byFresh   = "rotation in attention"
)

var faults = []fault{
	{"a stage is not waited for", "gemm_hopper.cu", "wait_phase(full + at * 8, phase);", "", byTiles},
	{"a stage is filled that is in use", "gemm_hopper.cu", "wait_phase(empty + at * 8, phase ^ 1);", "", byTiles},
	{"a stage is freed before its products are over", "gemm_hopper.cu", "products_wait<1>();", "", byTiles},
	{"a shared stage is freed in one block", "gemm_hopper.cu", "arrive_at(empty + s * 8, lane, lane < 2);", "arrive(empty + s * 8, lane == 0);", byTiles},
	{"a block leaves before the other", "gemm_hopper.cu", "sync_warp();\ncluster_sync();", "sync_warp();", byTiles},
	{"barriers that the other block has not made", "gemm_hopper.cu", "else cluster_sync();", "else sync();", byTiles},
	{"sums are given away before there is room", "gemm_hopper.cu", "wait_with(taken, phase ^ 1);", "", byTiles},
	{"sums are taken before they are there", "gemm_hopper.cu", "wait_with(there, phase);", "", byTiles},
	{"a barrier waits for fewer bytes", "gemm_hopper.cu", "expect(arrived, stage);", "expect(arrived, stage - 64);", byTiles},

	{"copies are not shown to products", "attend_hopper.cuh", "proxy_fence();", "", byFlash},
	{"copies are told of before they arrive", "flash_hopper.cuh", "copy_wait<2>();", "copy_wait<3>();", byFlash},
	{"keys are freed while they are read", "flash_hopper.cuh", "products_wait<1>(x);\narrive(empty + k, lane == 0);", "arrive(empty + k, lane == 0);\nproducts_wait<1>(x);", byFlash},
	{"keys of 256 numbers are freed while they are read", "flash_hopper.cuh", "products_wait<1>(x);\narrive(empty + k, lane == 0);", "arrive(empty + k, lane == 0);\nproducts_wait<1>(x);", byLong},
	{"values of 256 numbers are read before they are there", "flash_hopper.cuh", "wait_phase(full + v, (u - 1) / STAGES % 2);\nstart_values", "start_values", byLong},
	{"values are freed while they are read", "flash_hopper.cuh", "products_wait<0>(o);\nif (u) arrive(empty + v, lane == 0);", "if (u) arrive(empty + v, lane == 0);\nproducts_wait<0>(o);", byFlash},

	{"copies of units are told of before they arrive", "attend_decode_hopper.cu", "copy_wait<1>();", "copy_wait<2>();", byUnits},
	{"a stage of a unit is filled that is in use", "attend_decode_hopper.cu", "wait_phase(room, parity);", "", byUnits},
	{"a unit's values are not waited for", "attend_decode_hopper.cu", "wait_phase(b.full(g, true, i), Barriers::parity(true, i));", "", byUnits},
	{"a unit's keys are freed while they are read", "attend_decode_hopper.cu", "products_wait<0>(s);\narrive(b.empty(g, false, i), lane == 0);", "arrive(b.empty(g, false, i), lane == 0);\nproducts_wait<0>(s);", byUnits},
	{"a unit's values are freed while they are read", "attend_decode_hopper.cu", "products_wait<0>(part);\narrive(b.empty(g, true, i), lane == 0);", "arrive(b.empty(g, true, i), lane == 0);\nproducts_wait<0>(part);", byUnits},
	{"groups of units do not wait for their turn", "attend_decode_hopper.cu", "if (group) wait_phase(b.joined(group - 1), 0);", "", byUnits},
	{"weights of lines are not waited for", "few.cuh", "wait_phase(barriers + at.stage * 8, at.phase);", "", byLines},
	{"a stage of lines is filled while it is read", "few.cuh", "sync_warp();\ncopy(at.stage);", "copy(at.stage);", byLines},
	{"lines of few rows are not waited for", "few.cuh", "wait_phase(mine, 0);", "", byLines},
	{"a place of sums is written while it is read", "few.cuh", "wait_phase(empty + (owner * fewPlaces + turn) * 8, phase);", "", byLines},
	{"a place of sums is read before it is there", "finish.cuh", "if constexpr (C == 1) wait_phase(full + turn * 8, phase);\nelse wait_with(full + turn * 8, phase);", "", byLines},
	{"a place of sums is given back while it is read", "finish.cuh", "sync_warp();\nif constexpr (C == 1) arrive(empty", "if constexpr (C == 1) arrive(empty", byLines},
	{"a block is told of a place for which nobody waits", "finish.cuh", "lane < C && strip + fewPlaces < strips.count);", "lane < C);", byLines},

	{"weights of strips are not waited for where rows stay", "held.cuh", "wait_phase(barriers + at.stage * 8, at.phase);", "", byHeld},
	{"a stage is filled while it is read where rows stay", "held.cuh", "sync_warp();\ncopy(at.stage);", "copy(at.stage);", byHeld},
	{"a place of sums is written while it is read where rows stay", "held.cuh", "wait_phase(empty + turn * 8, phase);", "", byHeld},
	{"scales behind half a granule are not waited for", "held.cuh", "barrier, bytes + scales);", "barrier, bytes);", byHeld},
	{"rows that stay are taken before they are made", "held.cuh", "dependency_wait();\ntake(b);", "take(b);", byHeld},
	{"a tile of rows is read before all of it is there", "held.cuh", "sync_warp();\ntileAt(b[tile], to);", "tileAt(b[tile], to);", byHeld},
	{"the next tile of rows overwrites what is read", "held.cuh", "tileAt(b[tile], to);\nsync_warp();", "tileAt(b[tile], to);", byHeld},
	{"weights come where rows are still read", "held.cuh", "proxy_fence(); // before", "// before", byHeld},
	{"a row is normed before it is made", "held.cuh", "dependency_wait();\nif constexpr (norms == normsAll)", "if constexpr (norms == normsAll)", byHeld},
	{"squares of rows are added up before they are there", "held.cuh", "sync_group(1, normThreads);\nif (warp < R) {", "if (warp < R) {", byHeld},
	{"rows are normed before their scales are there", "held.cuh", "scales[warp] = scale;\n}\nsync_group(1, normThreads);", "scales[warp] = scale;\n}", byHeld},
	{"a tile of rows is read before all of it is normed", "held.cuh", "sync_warp();\nUNROLL for (u32 tile", "UNROLL for (u32 tile", byHeld},
	{"squares are added before all are there", "norm.cuh", "meet();\nconst float scale", "const float scale", byHeld},
	{"a row is read before all of it is normed", "held.cuh", "sync_group(1, normThreads);\nUNROLL for (u32 u = 0; u < U; u++) {\nif", "UNROLL for (u32 u = 0; u < U; u++) {\nif", byHeld},

	{"sums of inputs are not waited for", "tiled.cuh", "if (takesSums && j == first) wait_phase(summed(at.stage), at.phase);", "", byScaled},
	{"sums are sent before the last ones are read", "tiled.cuh", "else wait_phase(taken, (round - 1) & 1);", "", byTiled},
	{"the cluster is not waited for", "tiled.cuh", "if (round == 0) cluster_wait();\nelse", "if (round > 0)", byTiled},
	{"weights are read a copy too early", "tiled.cuh", "copy_wait<weightStages - 2>();", "copy_wait<weightStages - 1>();", byScaled},
	{"one lane frees a stage for its warp", "tiled.cuh", "sync_warp();\narrive(empty(at.stage), lane == 0);", "arrive(empty(at.stage), lane == 0);", byScaled},
	{"rounded weights are not waited for", "tiled.cuh", "wait_phase(arrived + mine.stage * 8, mine.phase);\nwait_phase(full(at.stage), at.phase);\nconst", "wait_phase(full(at.stage), at.phase);\nconst", byTiled},
	{"a stage is freed while its products read it", "tiled.cuh", "chain(total, w[0], descriptor_of(x));\nproducts_wait<1>();\narrive(empty(before), lane == 0 && before < p.stages);", "chain(total, w[0], descriptor_of(x));\narrive(empty(before), lane == 0 && before < p.stages);\nproducts_wait<1>();", byTiled},
	{"a slice is added before its products are over", "tiled.cuh", "products_wait<0>(total);\nadd(sum, total, round);", "add(sum, total, round);", byTiled},
	{"weights of a team alone are not waited for", "tiled.cuh", "auto arrival = [&]() INLINE {\nwait_phase(arrived + mine.stage * 8, mine.phase);", "auto arrival = [&]() INLINE {", byTiled},
	{"rows of a team alone are not waited for", "tiled.cuh", "wait_phase(full(at.stage), at.phase);\n};", "};", byTiled},
	{"a team alone frees a stage while its products read it", "tiled.cuh", "start(total, 0);\nproducts_wait<1>();\narrive(empty(before), lane == 0 && before < p.stages);", "start(total, 0);\narrive(empty(before), lane == 0 && before < p.stages);\nproducts_wait<1>();", byTiled},
	{"a team alone frees a stage before its second half is over", "tiled.cuh", "products_wait<0>(total);\narrive(empty(at.stage), lane == 0);\nnext();", "arrive(empty(at.stage), lane == 0);\nproducts_wait<0>(total);\nnext();", byTiled},
	{"a team alone frees the last stage of a slice while it is read", "tiled.cuh", "products_wait<0>(total);\narrive(empty(before), lane == 0 && before < p.stages);", "arrive(empty(before), lane == 0 && before < p.stages);\nproducts_wait<0>(total);", byTiled},
	{"a half of a stage is added before its products are over", "tiled.cuh", "start(total, 0);\nproducts_wait<0>(total);", "start(total, 0);", byTiled},
	{"sums are stored over rings in use", "tiled.cuh", "sync_group(15, warps * 32);\nUNROLL", "UNROLL", byTiled},

	{"weights are not waited for", "strip_copies.cuh", "wait_phase(barriers + at.stage * 8, at.phase);", "", byOne},
	{"a stage is filled while it is read", "strip_copies.cuh", "sync_warp();\ncopy(at.stage);", "copy(at.stage);", byOne},
	{"the row may not be there", "one.cuh", "dependency_wait();\nconst u32 last", "const u32 last", byOne},
	{"sums are added before they are there", "one.cuh", "sync();\nif (index + strip < last", "if (index + strip < last", byOne},
	{"sums are overwritten while they are added", "one.cuh", "pass * 16, before);\nsync();", "pass * 16, before);", byOne},
	{"half a granule is waited for", "strip_copies.cuh", "later || sooner ? p.granule - half : p.granule, all", "later ? p.granule - half : sooner ? half : p.granule, all", byOne},
	{"the half of another warp is copied", "strip_copies.cuh", "put(j, to + skip, from + skip, bytes, barrier, all);", "put(j, to, from, bytes, barrier, all);", byOne},
	{"a block too many has a strip more", "one.cuh", "(bid() < more ? each : 0)", "(bid() <= more ? each : 0)", byOne},

	{"weights are not waited for", "wide.cuh", "wait_phase(there(mine.stage), mine.phase);", "", byWide},
	{"inputs are freed while they are read", "wide.cuh", "products_wait<1>();\nif constexpr (shares) arrive_at(empty(before), lane, lane < 2 && pair > first);\nelse arrive(empty(before), lane == 0 && pair > first);", "if constexpr (shares) arrive_at(empty(before), lane, lane < 2 && pair > first);\nelse arrive(empty(before), lane == 0 && pair > first);\nproducts_wait<1>();", byWide},
	{"shared inputs are freed in one block", "wide.cuh", "arrive_at(empty(before), lane, lane < 2 && pair > first);", "arrive(empty(before), lane == 0 && pair > first);", byWide},
	{"a pair's block leaves before the other", "wide.cuh", "sync_warp();\ncluster_sync();", "sync_warp();", byWide},
	{"a pair's barriers that the other block has not made", "wide.cuh", "if constexpr (T::shares) {\ncluster_sync();", "if constexpr (T::shares) {\nsync();", byWide},
	{"parts are told of without a fence", "wide.cuh", "if (tid() == 0) {\nfence();", "if (tid() == 0) {", byWide},
	{"one thread waits for the parts", "wide.cuh", "sync_all();\nif (tid() == 0 && atomic_add(count, 1)", "if (tid() == 0 && atomic_add(count, 1)", byWide},
	{"the counter of parts is left as it is", "wide.cuh", "*count = 0;", "{}", byWide},

	{"a stage of slices is not waited for", "sliced_hopper.cu", "if (half == 0) wait_phase(full + at * 8, phase);", "", bySliced},
	{"a stage of slices is filled that is in use", "sliced_hopper.cu", "wait_phase(empty + at * 8, phase ^ 1);", "", bySliced},
	{"a stage of slices is freed before its products are over", "sliced_hopper.cu", "products_wait<1>();\narrive_at(empty + done * 8, lane, lane < 2 && done < STAGES);", "arrive_at(empty + done * 8, lane, lane < 2 && done < STAGES);\nproducts_wait<1>();", bySliced},
	{"a slice is added before its products are over", "sliced_hopper.cu", "products_wait<0>(c);", "", bySliced},
	{"a stage of slices is freed in one block", "sliced_hopper.cu", "products_wait<1>();\narrive_at(empty + done * 8, lane, lane < 2 && done < STAGES);", "products_wait<1>();\narrive(empty + done * 8, lane == 0 && done < STAGES);", bySliced},
	{"a block of slices leaves before the other", "sliced_hopper.cu", "sync_warp();\ncluster_sync();", "sync_warp();", bySliced},
	{"barriers of slices that the other block has not made", "sliced_hopper.cu", "cluster_sync();\nif (tid() / 128", "sync();\nif (tid() / 128", bySliced},
	{"a barrier of slices waits for fewer bytes", "sliced_hopper.cu", "expect(arrived, 2 * (2 * box * 128", "expect(arrived, 2 * (box * 128", bySliced},
	{"weights of many rows' experts are not waited for", "grouped_wide.cuh", "wait_phase(there(mine.stage), mine.phase);\nwait_phase(full(at.stage), at.phase);\nconst u8 *low = weightsAt + mine.stage * 2 * pairBytes;\nconst u32 x = descriptor_low(rows + at.stage * stage);\nUNROLL", "wait_phase(full(at.stage), at.phase);\nconst u8 *low = weightsAt + mine.stage * 2 * pairBytes;\nconst u32 x = descriptor_low(rows + at.stage * stage);\nUNROLL", byGrouped},
	{"gathered rows are not waited for", "grouped_wide.cuh", "wait_phase(full(at.stage), at.phase);\nconst u8 *low = weightsAt + mine.stage * 2 * pairBytes;\nconst u32 x = descriptor_low(rows + at.stage * stage);\nUNROLL", "const u8 *low = weightsAt + mine.stage * 2 * pairBytes;\nconst u32 x = descriptor_low(rows + at.stage * stage);\nUNROLL", byGrouped},
	{"rows are gathered where others are read", "grouped_wide.cuh", "wait_phase(empty(at.stage), at.phase ^ 1);", "", byGrouped},
	{"gathered rows are freed before their products are over", "grouped_wide.cuh", "if (half == 0 && j == 1) arrive(", "if (half == 0 && j == 0) arrive(", byGrouped},
	{"gathered rows are told of before they are there", "grouped_wide.cuh", "copy_wait<ahead>();\nif (untold == ahead) tell();", "if (untold == ahead) tell();", byGrouped},
	{"the last gathered rows are told of before they are there", "grouped_wide.cuh", "copy_wait<0>();", "", byGrouped},
	{"gathered rows are not shown to products", "grouped_wide.cuh", "proxy_fence();\narrive(full(told.stage), true);", "arrive(full(told.stage), true);", byGrouped},
	{"inputs of an expert's rows are summed before all are there", "grouped_wide.cuh", "sync_group(1, 128); // all copies of the stage are there", "", byFolds},
	{"sums of inputs are overwritten while a lane reads them", "grouped_wide.cuh", "if (takesSums) sync_warp(); // all lanes have read the sums", "", byFolds},
	{"scales are applied before an expert's products are over", "grouped_wide.cuh", "else products_wait<0>(acc[1]);", "else products_wait<1>(acc[1]);", byFolds},
	{"experts' operands are overwritten while they are read", "grouped_wide.cuh", "products_wait<1>(); // that of these operands", "", byGrouped},
	{"weights are not waited for", "experts.cuh", "wait_groups(p.stages - 1);\nsync_warp();\nmultiply(total, stage);\nsync_warp();\nif", "sync_warp();\nmultiply(total, stage);\nsync_warp();\nif", byExperts},
	{"a warp's weights are read before all lanes have them", "experts.cuh", "wait_groups(p.stages - 1);\nsync_warp();\ne.multiply(total, stage);\nsync_warp();\nloadNext", "wait_groups(p.stages - 1);\ne.multiply(total, stage);\nsync_warp();\nloadNext", byExperts},
	{"a stage is filled while it is read", "experts.cuh", "e.multiply(total, stage);\nsync_warp();\nloadNext", "e.multiply(total, stage);\nloadNext", byExperts},
	{"parts are added before they are there", "experts.cuh", "total[j][i];\nsync();", "total[j][i];", byExperts},
	{"sums are overwritten while they are added", "experts.cuh", "if (chunk) sync();", "{}", byExperts},
	{"lists are read before all of them are there", "experts.cuh", "sync();\nJoin<W> y", "Join<W> y", byExperts},
	{"rows are read before they are made", "experts.cuh", "y.template loadNext<true, false>(i);\ndependency_wait();", "y.template loadNext<true, false>(i);", byExperts},
	{"the router may not be done", "experts.cuh", "dependency_wait();\nlaunch_dependents(); // only now: experts_join then", "launch_dependents();\ndependency_wait(); // experts_join then", byExperts},
	{"the logits may not be there", "experts.cuh", "dependency_wait();\nlaunch_dependents(); // only now: experts_join_one", "launch_dependents();\ndependency_wait(); // experts_join_one", byExperts},
	{"an expert is read before it is found", "experts.cuh", "*found = expert;\n}\nsync();", "*found = expert;\n}", byExperts},
	{"an expert is known before it is chosen", "experts_few.cuh", "if (lane == 0) *found = expert;\n}\nsync();", "if (lane == 0) *found = expert;\n}", byFew},
	{"the only row is chosen for before there are logits", "experts_few.cuh", "sync(); // barriers are there\ndependency_wait();", "sync();", byFew},
	{"the only row may not be there", "experts_few.cuh", "wait_phase(taken, 0);\nfloat total", "float total", byFew},
	{"weights of the only row are not waited for", "experts_few.cuh", "if (i % oneChunk == 0) wait_phase(barriers + i / oneChunk * 8, 0);", "", byFew},
	{"up of the only row is not waited for", "experts_few.cuh", "bytes, barrier, 2 * bytes);", "bytes, barrier, bytes);", byFew},
	{"parts of the only row are added before they are there", "experts_few.cuh", "sync();\nconst u32 m = strip", "const u32 m = strip", byFew},
	{"weights of few rows are not waited for", "experts_few.cuh", "wait_phase(barriers + at.stage * 8, at.phase);\nmultiply(", "multiply(", byFew},
	{"a stage of few rows is filled while it is read", "experts_few.cuh", "i, at.stage);\nsync_warp();\ncopyNext(at.stage);", "i, at.stage);\ncopyNext(at.stage);", byFew},
	{"few rows may not be there", "experts_few.cuh", "wait_phase(taken, 0);\nRing", "Ring", byFew},
	{"lists of few rows are read before all of them are there", "experts_few.cuh", "sync();\nconst u32 team", "const u32 team", byFew},
	{"parts of few rows are added before they are there", "experts_few.cuh", "sync_group(1 + team, teamWarps * 32);\ny.store(item, next);", "y.store(item, next);", byFew},
	{"sums of few rows are overwritten while they are added", "experts_few.cuh", "y.store(item, next);\nsync_group(1 + team, teamWarps * 32);", "y.store(item, next);", byFew},
	{"down of few rows is not waited for", "experts_few.cuh", "wait_phase(barriers + at.stage * 8, at.phase);\nconst u8 *stage", "const u8 *stage", byFew},
	{"a stage of down of few rows is filled while it is read", "experts_few.cuh", "sync_warp();\nloadNext<true, true>(at.stage);", "loadNext<true, true>(at.stage);", byFew},
	{"down of few rows reads rows before they are made", "experts_few.cuh", "dependency_wait();\nif (one && bid() == 0 && warp == 0) note_choice(j, c, by, lane);", "", byFew},
	{"down of few rows waits for weights alone", "experts_few.cuh", "p.granule + count * bytes);", "p.granule);", byFew},
	{"few rows are added up before all experts are there", "experts_few.cuh", "sync();\nadd_up<W>(p, j, l, to);", "add_up<W>(p, j, l, to);", byFew},
	{"few rows are added up before all experts of a strip are there", "experts_few.cuh", "sync();\ntakeNone();\nadd_up", "takeNone();\nadd_up", byFew},
	{"weights of down of few rows are not waited for", "experts_few.cuh", "wait_phase(barrier, parity);", "", byFew},
	{"a ring of down has one phase", "experts_few.cuh", "if (at == 0) parity ^= 1;", "", byFew},
	{"a stage of down is filled while it is read", "experts_few.cuh", "sync_warp();\ncopyNext(ring + at, barrier);", "copyNext(ring + at, barrier);", byFew},
	{"what down makes overwrites sums of gate and up", "experts_few.cuh", "if (!apart) sync();", "", byFew},
	{"the next strip overwrites what is added up", "experts_few.cuh", "sync(); // what was made is added up", "", byFew},
	{"the sum begins before all experts are there", "experts.cuh", "sync();\nadd_up<W>(p", "add_up<W>(p", byExperts},
	{"rows of a stage are read too early", "grouped.cuh", "wait_groups(p.stages - 2);\nsync();", "wait_groups(p.stages - 2);", byExperts},
	{"a stage is read a copy too early", "grouped.cuh", "wait_groups(p.stages - 2);", "wait_groups(p.stages - 1);", byExperts},
	{"lines of this step are copied too", "attend_unit.cu", "if (!(but & 1)) {", "{", byFresh},
	{"angles are not waited for", "attend_unit.cu", "copy_wait<1>();\nsync();", "sync();", byFresh},
	{"angles are read before all have come", "attend_unit.cu", "copy_wait<1>();\nsync();", "copy_wait<1>();", byFresh},
	{"keys and values of a unit are not waited for", "attend_unit.cu", "copy_wait<0>();\nsync();", "sync();", byFresh},
	{"queries are read before all are made", "attend_unit.cu", "copy_wait<0>();\nsync();", "copy_wait<0>();", byFresh},
	{"peaks of a unit are read before all are there", "attend_unit.cu", "sync();\nfloat top[2]", "float top[2]", byFresh},
	{"probabilities of a unit are read before all are there", "attend_unit.cu", "sync();\nfloat o[2", "float o[2", byFresh},
	{"all blocks of a unit keep its keys and values", "attend_unit.cu", "&& w.first == 0", "", byFresh},
	{"the second half's groups are added before they are there", "attend.cu", "sync();\nif (half) continue;", "if (half) continue;", byFresh},
	{"groups of the next parts overwrite what is added", "attend.cu", "if (p) sync(); // the first half is", "// the first half is", byFresh},

	{"squares of rows are added before all are there", "route.cu", "sync();\nfloat *scales", "float *scales", byRoute},
	{"rows are scaled before all scales are there", "route.cu", "if (t % 32 == 0) scales[t / 32] = scale;\n}\nsync();", "if (t % 32 == 0) scales[t / 32] = scale;\n}", byRoute},
	{"rows are multiplied before all are normed", "route.cu", "if (p.bf16) ((u32x2 *)p.bf16)[at] = pack_bf16_x4(a);\n}\nsync();", "if (p.bf16) ((u32x2 *)p.bf16)[at] = pack_bf16_x4(a);\n}", byRoute},
	{"rows choose before there are logits", "route.cu", "if (!rehearsed) dependency_wait();", "", byRoute},
	{"what is rehearsed is chosen over before it is listed", "route.cu", "list(p, marks, rows, totals, rehearsed);\nsync();", "list(p, marks, rows, totals, rehearsed);", byRoute},
	{"logits are added before all parts are there", "route.cu", "sync();\nif (tid() < routeGroups * sums) {", "if (tid() < routeGroups * sums) {", byRoute},
	{"rows are listed before all have chosen", "route.cu", "sync();\nlist(p, marks", "list(p, marks", byRoute},
	{"quarters are added before all are there", "route.cu", "sync();\nfor (u32 i = tid(); i < promptRows", "for (u32 i = tid(); i < promptRows", byRoute},
	{"rows are noted before all have chosen", "route.cu", "sync();\nif (tid() >= experts) return;", "if (tid() >= experts) return;", byRoute},
	{"rows are counted before all counts are there", "route.cu", "counts[tid()] = count;\nsync();", "counts[tid()] = count;", byRoute},
	{"rows are listed before their places are known", "route.cu", "at[tid()] = to;\nsync();", "at[tid()] = to;", byRoute},
}

// silent are faults in what tells by itself whether it is there, which orders nothing: results are wrong, or a
// launch does not end.
var silent = []fault{
	{"down of few rows waits for what it has seen", "experts_few.cuh", "bring(row - W::inputs / 2, block);", "bring(row, block);", byFew},
	{"down of few rows does not look whether its rows are there", "experts_few.cuh", "while (missing()) {", "while (false) {", byFew},
	{"down of few rows looks at half of its rows", "experts_few.cuh", "larger_of(larger_of(v, b[block][i].x), b[block][i].z)", "larger_of(v, b[block][i].x)", byFew},
	{"slots of the next strip are taken already", "experts_few.cuh", "sync();\ntakeNone();", "sync();", byFew},
	{"the place of the next launch is not cleared", "experts_few.cuh", "((u32x4 *)other)[i] = {nothing, nothing, nothing, nothing};", ";", byFew},
	{"a place is cleared that is in use", "experts_few.cuh", "((u32x4 *)other)[i] = ", "((u32x4 *)inner)[i] = ", byFew},
	{"the next launch takes the same place", "experts_few.cuh", "atomic_add(places, inner < other ? 1 : -1);", "", byFew},
}

// plant puts the fault into the text of its file.
func (f fault) plant(text string) (string, error) {
	trim := func(s string) string {
		lines := strings.Split(s, "\n")
		for i, l := range lines {
			lines[i] = strings.TrimLeft(l, " ")
		}
		return strings.Join(lines, "\n")
	}
	text = trim(text)
	if f.from == "" { // no fault at all
		return text, nil
	}
	if n := strings.Count(text, f.from); n != 1 {
		return "", fmt.Errorf("%s, %s: %q stands there %d times", f.file, f.what, f.from, n)
	}
	return strings.Replace(text, f.from, f.to, 1), nil
}

// sources are the files of kernels that the fault's self-test runs.
func (f fault) sources() (hopper string, others []string) {
	switch f.by {
	case byTiles:
		return "gemm_hopper", []string{"gemm"}
	case byTiled:
		return "tiled_affine4_hopper", []string{"pack", "stream_affine4"}
	case byScaled:
		return "tiled_q4_0_hopper", []string{"pack", "stream_q4_0"}
	case byOne:
		return "one_affine4_hopper", []string{"pack", "stream_affine4"}
	case byWide:
		return "wide_affine4_hopper", []string{"pack"}
	case byUnits:
		return "attend_decode_hopper", []string{"attend"}
	case byLines:
		return "few_affine4_hopper", []string{"pack", "stream_affine4"}
	case byFolds:
		return "grouped_wide_affine8_hopper", []string{"experts_affine8", "grouped_affine8", "route", "rows", "pack", "stream_affine8", "gemm"}
	case byGrouped:
		return "grouped_wide_affine4_hopper", []string{"experts_affine4", "grouped_affine4", "route", "rows", "pack", "experts_few_affine4_hopper", "stream_affine4", "gemm"}
	case bySliced:
		return "sliced_hopper", []string{"gemm_hopper", "gemm", "stream_bf16"}
	case byHeld:
		return "held_affine4_hopper", []string{"pack", "rows", "stream_affine4"}
	case byExperts:
		return "", []string{"pack", "rows", "route", "experts_affine4", "grouped_affine4", "stream_affine4", "gemm"}
	case byFew:
		return "experts_few_affine4_hopper", []string{"experts_affine4", "route", "rows", "pack"}
	case byRoute:
		return "", []string{"route", "rows"}
	case byFresh:
		return "", []string{"attend_unit", "attend", "rotate"}
	case byDelta:
		return "", []string{"delta"}
	case byFewRows:
		return "delta_few_hopper", []string{"delta"}
	case byDecode:
		return "attend", nil
	case byPrefill:
		return "attend_prefill", nil
	case byLong:
		return "attend_256_hopper", nil
	}
	return "attend_hopper", nil
}

// notice runs the self-test on a device with the fault, and returns what it says.
func (f fault) notice(t *testing.T, number int) error {
	dir := t.TempDir()
	folder := filepath.Join(dir, fmt.Sprintf("kernels-%d", number))
	beside, err := filepath.Abs("../emulator")
	if err == nil {
		err = os.Symlink(beside, filepath.Join(dir, "emulator"))
	}
	if err == nil {
		err = os.Mkdir(folder, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	hopper, others := f.sources()
	var patterns []string
	if hopper != "" {
		others = append(others, hopper)
		for _, name := range others {
			if strings.HasSuffix(name, "_hopper") {
				patterns = append(patterns, name)
			}
		}
	}
	files, err := filepath.Glob("../kernels/*.cuh")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range others {
		files = append(files, filepath.Join("../kernels", name+".cu"))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if filepath.Base(file) == f.file {
			if text, err = f.plant(text); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(file)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lib, err := driver.Open(driver.Options{Library: emulator.Changed(t, folder, patterns...)})
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDevice(lib, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.Context.Enter()
	defer d.Context.Leave()
	d.brief = true
	if hopper == "" {
		d.withoutHopper()
	}
	for _, s := range SelfTests {
		if s.Name == f.by {
			return s.try(d)
		}
	}
	t.Fatalf("no self-test %q", f.by)
	return nil
}

// TestMutations plants one fault at a time in the kernels for compute capability
// 9.0: the checker must report each, but for those of silent.
func TestMutations(t *testing.T) {
	if os.Getenv("WINDROW_SLOW") == "" {
		t.Skip("minutes on the emulator: set WINDROW_SLOW=1")
	}
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	t.Setenv("WINDROW_EMULATED_SMS", "8")
	for i, f := range slices.Concat(faults, silent) {
		t.Run(f.file+", "+f.what, func(t *testing.T) {
			err := f.notice(t, i)
			if err == nil || i < len(faults) && !strings.Contains(err.Error(), "LAUNCH_FAILED") || strings.Contains(err.Error(), "NOT_FOUND") {
				t.Fatalf("not reported: %v", err)
			}
			said, _, _ := strings.Cut(err.Error(), "\n")
			t.Log(said)
		})
	}
}

// TestMutationsPlanted: all faults can be planted, each in a file that the kernels of its
// self-test are made of.
func TestMutationsPlanted(t *testing.T) {
	for _, f := range slices.Concat(faults, silent) {
		text, err := os.ReadFile(filepath.Join("../kernels", f.file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.plant(string(text)); err != nil {
			t.Error(err)
		}
		hopper, others := f.sources()
		var made strings.Builder
		for _, source := range append(others, hopper) {
			if source == "" {
				continue
			}
			text, err := emulation.SourceOf(filepath.Join("../kernels", source+".cu"))
			if err != nil {
				t.Fatal(err)
			}
			made.WriteString(text)
		}
		if !strings.Contains(made.String(), string(text)) {
			t.Errorf("%s, %s: not part of what %q runs", f.file, f.what, f.by)
		}
	}
}
