// Projections of more rows than stream.cuh is made for, on compute capability
// 9.0: the same packed weights and the same bits. wgmma adds up as mma does; the
// inputs are cut into as many slices as stream.cuh has warps, and the sums of
// the slices are added in their order.
//
// A cluster of C blocks makes `wide`·64 outputs of NT·8 rows. The warpgroups of a
// block that multiply stand in KG teams of `wide`; a warp has a strip, and team g
// of the cluster's KG·C the slices g, g + KG·C, .... After each slice the teams
// exchange their sums, and a warp adds its part of them to what it has. A team's
// inputs pass through a ring, 128 a stage, which the first warpgroup fills and
// makes sums of; each warp has a ring of its own for its weights. Sums of inputs are
// needed where scales are applied to sums; weights that are rounded (packed.cuh) need
// none, and the products of a slice are one chain. A team that has all slices goes through
// the inputs from one end to the other, which takes the least instructions.
#pragma once
#include "chain.cuh"
#include "strips.cuh"

template <class W, u32 NT, u32 KG, u32 C> struct Tiler {
  static constexpr u32 teams = KG * C; // of the cluster
  // A block's threads, and the registers of those that multiply, and that fill.
  static constexpr u32 mostThreads = NT == 8 && KG == 2 ? 384 : KG == 1 && NT > 2 ? 512 : NT <= 2 ? 768 : 640;
  static constexpr u32 registers = mostThreads == 384 ? 216 : mostThreads == 512 ? 152 : mostThreads == 640 ? 104 : 88;
  static constexpr u32 fillRegisters = mostThreads == 384 ? 72 : mostThreads == 512 ? 56 : mostThreads == 640 ? 64 : 40;
  static constexpr u32 weightStages = NT == 16 ? 2 : W::rounds && NT <= 2 ? 3 : 4; // of a warp's ring
  static constexpr u32 rowsTile = NT * 8, unitRows = rowsTile * 128; // bytes of 64 inputs
  static constexpr u32 perGranule = W::inputs / 64;
  static constexpr u32 parts = 64 / W::fold, steps = W::fold / 16; // folds of a unit, steps of a fold
  static constexpr u32 own = NT * 4 / teams;                       // sums that a lane adds up
  static constexpr u32 foldSums = W::rounds ? 0 : 2 * 2 * rowsTile; // floats of a stage
  static constexpr u32 sharers = 4 / KG;                           // warps that fill a ring
  static constexpr bool takesSums = W::sums && !W::rounds;          // of inputs
  static_assert(!takesSums || parts <= 2);
  static constexpr bool straight = teams == 1 && W::rounds;         // from one end of the inputs to the other
  static_assert(!W::rounds || perGranule == 2);                     // a stage of such weights is a granule
  static constexpr bool apart = NT == 16;                          // sums of slices are in shared memory, for want of registers
  static_assert(own % 4 == 0 && (KG == 1 || C == 1) && (!apart || (teams == 1 && W::rounds)));

  const Projection &p;
  u32 slicesShift, wide; // log2 of the slices
  u32 lane, g, t;
  u32 units, depth;         // of a strip; its granules
  u32 stripFirst, rowFirst; // of this block
  u32 rank, team, strip;    // of the cluster; of the block; strip: of its tile
  u32 pairBytes;            // of 128 inputs of a strip
  // The team's barriers and ring, and the warp's.
  u32 barriers, rows, weights, arrived; // arrived: the barriers of the warp's ring
  const u8 *weightsAt; // the same
  float *foldAt, *spare;
  u32 exchange, there; // sums of the teams, and the barriers that they are there and taken

  // Barriers of a stage: it is full, its inputs are summed up, it is empty.
  METHOD u32 full(u32 stage) const { return barriers + stage * 8; }
  METHOD u32 summed(u32 stage) const { return barriers + 64 + stage * 8; }
  METHOD u32 empty(u32 stage) const { return barriers + 128 + stage * 8; }

  METHOD u32 firstOf(u32 slice) const { return slice * units >> slicesShift; }

  // Walk goes through the stages of the team's slices; seek tells whether there
  // is one at pair.
  struct Walk {
    const Tiler &k;
    u32 slice, pair = 0, end = 0;
    METHOD Walk(const Tiler &k) : k(k), slice(k.rank * KG + k.team) { aim(); }
    METHOD void aim() {
      u32 first = k.firstOf(slice), last = k.firstOf(slice + 1);
      pair = first / 2;
      end = first == last ? pair : (last + 1) / 2;
    }
    METHOD bool seek() {
      _Pragma("nounroll") while (pair == end) {
        slice += teams;
        if (slice >= 1u << k.slicesShift) {
          slice -= teams;
          return false;
        }
        aim();
      }
      return true;
    }
  };

  // copyWeights starts the copies of the next stage of this warp's strip, where
  // there is one.
  METHOD void copyWeights(Walk &walk, const u8 *source, u32 slot) const {
    if (walk.seek()) {
      u32 done = walk.pair * pairBytes, rest = depth * p.granule - done, bytes = rest < pairBytes ? rest : pairBytes;
      constexpr u32 most = (2 / perGranule * (W::bytes + 192) + 511) / 512;
      const u8 *from = source + done;
      u32 to = weights + slot * pairBytes + lane * 16;
      UNROLL for (u32 c = 0; c < most; c++)
        if (c * 512 + lane * 16 < bytes) copy_to(to + c * 512, from + c * 512, true);
      walk.pair++;
    }
    copy_commit();
  }

  // copyRows starts the copies of a stage's inputs: two boxes.
  METHOD void copyRows(u32 stage, u32 pair) const {
    if (lane == 0) {
      expect(full(stage), 2 * unitRows);
      UNROLL for (u32 half = 0; half < 2; half++) copy_box(rows + (stage * 2 + half) * unitRows, p.x, pair * 128 + half * 64, rowFirst, full(stage));
    }
    sync_warp();
  }

  // sumFolds makes the sums of a stage's inputs over each fold: products with
  // ones, the same in every row of a result.
  METHOD void sumFolds(Ring &done, u32 share) const {
    if constexpr (!takesSums) return;
    u32 stage = done.stage;
    wait_phase(full(stage), done.phase);
    float *to = foldAt + stage * foldSums;
    u32 from = rows + stage * 2 * unitRows + lane % 8 * 128;
    UNROLL for (u32 i = 0; i < (NT + sharers - 1) / sharers; i++) {
      u32 nt = i * sharers + share;
      if (NT % sharers != 0 && nt >= NT) break;
      u32 b[2][2][4];
      float acc[2][parts][4] = {};
      u32 one[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
      UNROLL for (u32 unit = 0; unit < 2; unit++)
        UNROLL for (u32 half = 0; half < 2; half++) load_matrix_at(b[unit][half], from + unit * unitRows + nt * 1024 + (((half * 4 + lane / 8) ^ lane % 8) << 4));
      UNROLL for (u32 k = 0; k < 4; k++)
        UNROLL for (u32 unit = 0; unit < 2; unit++) mma_bf16(acc[unit][k / steps], one, {b[unit][k / 2][k % 2 * 2], b[unit][k / 2][k % 2 * 2 + 1]});
      if (g == 0) {
        UNROLL for (u32 unit = 0; unit < 2; unit++)
          UNROLL for (u32 f = 0; f < parts; f++) *(f32x2 *)(to + (unit * 2 + f) * rowsTile + nt * 8 + t * 2) = f32x2{acc[unit][f][0], acc[unit][f][1]};
      }
    }
    sync_warp();
    arrive(summed(stage), lane == 0);
    done.next();
  }

  // fill fills a team's ring, and makes the sums of its inputs some stages
  // later; share is of the warps that do.
  METHOD void fill(u32 share) const {
    dependency_wait();
    Ring at{p.stages}, done{p.stages};
    if constexpr (straight) {
      if (share == 0)
        _Pragma("nounroll") for (u32 pair = 0; pair < (units + 1) / 2; pair++, at.next()) {
          wait_phase(empty(at.stage), at.phase ^ 1);
          copyRows(at.stage, pair);
        }
      return;
    }
    // Sums of a stage must not wait for the room of a stage after those that the
    // others multiply meanwhile.
    u32 lag = p.stages > 3 ? (p.stages + 1) / 2 : p.stages - 2, started = 0;
    Walk walk(*this);
    _Pragma("nounroll") for (; walk.seek(); walk.pair++) {
      if (share == 0) {
        wait_phase(empty(at.stage), at.phase ^ 1);
        copyRows(at.stage, walk.pair);
        at.next();
      }
      if (started++ >= lag) sumFolds(done, share);
    }
    _Pragma("nounroll") for (u32 left = started < lag ? started : lag; left > 0; left--) sumFolds(done, share);
    if (C > 1) cluster_wait();
  }

  // multiply adds the products of a stage's folds first to last - 1 to total; more
  // is done while the first ones are on their way.
  template <u32 first, u32 last, class F> METHOD void multiply(float (&total)[NT][4], const Ring &at, u32 slot, F more) const {
    const u8 *low = weightsAt + slot * pairBytes, *high = perGranule == 1 ? low + p.granule : low;
    u32 x = descriptor_low(rows + at.stage * 2 * unitRows);
    const float *sums = foldAt + at.stage * foldSums + t * 2;
    typename W::Numbers numbers[2] = {W::load(low, 0, lane), W::load(high, perGranule - 1, lane)};
    u32 w[4][4];
    UNROLL for (u32 j = first; j < last; j++) {
      u32 unit = j / parts, f = j % parts;
      if (f == 0) {
        UNROLL for (u32 k = 0; k < 4; k++) W::decode(w[k], numbers[unit], k);
      }
      float acc[NT][4];
      products_fence();
      UNROLL for (u32 k = f * steps; k < f * steps + steps; k++) product(acc, w[k], descriptor_of(x + unit * (unitRows >> 4) + k * 2), k > f * steps);
      products_commit();
      Affine scale = W::scales(unit ? high : low, (perGranule == 1 ? 0 : unit * parts) + f, p.shift, g);
      UNROLL for (u32 i = 0; i < 2; i++) scale.bias[i] = fma(scale.scale[i], -(float)W::offset, scale.bias[i]);
      if (j == first) more();
      if (takesSums && j == first) wait_phase(summed(at.stage), at.phase);
      products_wait<0>(acc);
      UNROLL for (u32 nt = 0; nt < NT; nt++) {
        f32x2 sum{};
        if constexpr (W::sums) sum = *(const f32x2 *)(sums + (unit * 2 + f) * rowsTile + nt * 8);
        UNROLL for (u32 e = 0; e < 4; e++) {
          float &to = total[nt][e];
          to = fma(scale.scale[e / 2], acc[nt][e], to);
          if constexpr (W::sums) to = fma(scale.bias[e / 2], e % 2 ? sum.y : sum.x, to);
        }
      }
    }
  }

  // add adds a slice of each team to the sums: this warp's part of them, in the
  // order of the slices. round counts a team's slices.
  METHOD void add(float (&sum)[own], const float (&total)[NT][4], u32 round) const {
    if constexpr (teams == 1) {
      UNROLL for (u32 i = 0; i < own; i++) sum[i] += total[i / 4][i % 4];
    } else {
      constexpr u32 part = own * 128; // bytes of a warp's part of a slice
      u32 taken = there + 8;
      if (C > 1) {
        // The other blocks are there; what they had of the round before has been read.
        if (round == 0) cluster_wait();
        else wait_phase(taken, (round - 1) & 1);
        if (lane == 0) expect(there, (teams - 1) * part);
        sync_warp();
      }
      UNROLL for (u32 owner = 0; owner < teams; owner++) {
        u32 block = owner / KG, to = exchange + ((owner % KG - team) * wide * 4 * teams + rank * KG + team) * part + lane * 16;
        UNROLL for (u32 i = 0; i < own / 4; i++) {
          const float(&v)[4] = total[owner * own / 4 + i];
          // A warp's own part is read by the thread that writes it: what st.async does to
          // the block that executes it is undefined (PTX ISA), and single sums differed.
          if (C > 1 && block != rank) give(in_block(to, block) + i * 512, v, in_block(there, block));
          else put_at(to + i * 512, v);
        }
      }
      if (C > 1) wait_with(there, round & 1);
      else sync_group(1 + strip, KG * 32);
      UNROLL for (u32 from = 0; from < teams; from++) {
        UNROLL for (u32 i = 0; i < own / 4; i++) {
          float v[4];
          get(v, exchange + from * part + lane * 16 + i * 512);
          UNROLL for (u32 e = 0; e < 4; e++) sum[i * 4 + e] += v[e];
        }
      }
      // What was read may be written again. After the last slice nobody writes, and
      // the block that is told may be gone.
      if (C > 1) {
        sync_warp();
        arrive_at(taken, lane, lane < C && (round + 1) * teams < 1u << slicesShift);
      } else {
        sync_group(1 + strip, KG * 32);
      }
    }
  }

  // copyBulk starts the copy of the next stage of this warp's strip, where there is one.
  METHOD void copyBulk(Walk &walk, const u8 *source, u32 slot) const {
    if (!walk.seek()) return;
    u32 done = walk.pair * pairBytes, rest = depth * p.granule - done;
    copy_bulk(weights + slot * pairBytes, source + done, rest < pairBytes ? rest : pairBytes, arrived + slot * 8);
    walk.pair++;
  }

  // workRounded is work of several teams by weights that are rounded: the products of a slice are one
  // chain. Both units of a stage are multiplied, so that the loop is one that keeps
  // products in flight (ptxas waits for each where chains are begun in branches); the
  // weights of one that is another slice's are zero.
  METHOD void workRounded(const u8 *source) const {
    // Weights never change: their copies need not wait for the kernel before.
    Walk walk(*this);
    _Pragma("nounroll") for (u32 slot = 0; slot < weightStages; slot++) copyBulk(walk, source, slot);
    Ring at{p.stages}, mine{weightStages};
    u32 w[2][4][4], before = p.stages; // the stage whose products may not be done: none
    float sum[own];
    UNROLL for (u32 i = 0; i < own; i++) sum[i] = -0.f; // which leaves the bits of what is added
    _Pragma("nounroll") for (u32 round = 0; round < (1u << slicesShift) / teams; round++) {
      const u32 slice = round * teams + rank * KG + team, first = firstOf(slice), end = firstOf(slice + 1);
      float total[NT][4] = {};
      _Pragma("nounroll") for (u32 unit = first & ~1u; unit < end && first < end; unit += 2) {
        wait_phase(arrived + mine.stage * 8, mine.phase);
        wait_phase(full(at.stage), at.phase);
        const u8 *from = weightsAt + mine.stage * pairBytes;
        const u32 x = descriptor_low(rows + at.stage * 2 * unitRows);
        rounded<W>(w[0], from, 0, p.shift, lane);
        if (unit < first) zero(w[0]);
        chain(total, w[0], descriptor_of(x));
        products_wait<1>();
        arrive(empty(before), lane == 0 && before < p.stages);
        rounded<W>(w[1], from, 1, p.shift, lane);
        if (unit + 1 == end) zero(w[1]);
        chain(total, w[1], descriptor_of(x + (unitRows >> 4)));
        copyBulk(walk, source, mine.stage);
        products_wait<1>();
        before = at.stage;
        at.next();
        mine.next();
      }
      products_wait<0>(total);
      add(sum, total, round);
    }
    store(sum);
  }

  // workStraight is work of a team that has all slices, by weights that are rounded. The halves of a stage may be two
  // slices'; products are in flight from stage to stage of one slice.
  METHOD void workStraight(const u8 *source) const {
    const u32 pairs = (units + 1) / 2, last = depth * p.granule - (pairs - 1) * pairBytes; // bytes of the last stage
    u32 left = pairs;                                                                      // stages whose copies have not begun
    auto copy = [&](u32 slot) INLINE {
      if (left == 0) return;
      left--;
      copy_bulk(weights + slot * pairBytes, source, left == 0 ? last : pairBytes, arrived + slot * 8);
      source += pairBytes;
    };
    // Weights never change: their copies need not wait for the kernel before.
    _Pragma("nounroll") for (u32 slot = 0; slot < weightStages; slot++) copy(slot);
    Ring at{p.stages}, mine{weightStages};
    float sum[own];
    if constexpr (!apart)
      UNROLL for (u32 i = 0; i < own; i++) sum[i] = -0.f; // which leaves the bits of what is added
    u32 w[2][4][4];
    constexpr bool sooner = NT > 2; // of more rows the stage's weights are asked for before its inputs are waited for
    typename W::Numbers numbers[2];
    // start begins the products of a half of the stage at work.
    auto start = [&](float(&total)[NT][4], u32 half) INLINE {
      const u8 *granule = weightsAt + mine.stage * pairBytes;
      rounded<W>(w[half], sooner ? numbers[half] : W::load(granule, half, lane), granule, half, p.shift, g);
      chain(total, w[half], descriptor_of(descriptor_low(rows) + (at.stage * 2 + half) * (unitRows >> 4)));
    };
    auto arrival = [&]() INLINE {
      wait_phase(arrived + mine.stage * 8, mine.phase);
      if constexpr (sooner)
        UNROLL for (u32 half = 0; half < 2; half++) numbers[half] = W::load(weightsAt + mine.stage * pairBytes, half, lane);
      wait_phase(full(at.stage), at.phase);
    };
    auto next = [&]() INLINE {
      copy(mine.stage);
      mine.next();
      at.next();
    };
    u32 unit = 0;
    _Pragma("nounroll") for (u32 slice = 0; slice < 1u << slicesShift; slice++) {
      const u32 end = firstOf(slice + 1);
      float total[NT][4] = {};
      if (unit < end && unit % 2 == 1) { // of the stage that the slice before began
        start(total, 1);
        products_wait<0>(total);
        arrive(empty(at.stage), lane == 0);
        next();
        unit++;
      }
      u32 before = p.stages; // the stage whose products may not be done: none
      _Pragma("nounroll") for (; unit + 2 <= end; unit += 2) {
        arrival();
        start(total, 0);
        products_wait<1>();
        arrive(empty(before), lane == 0 && before < p.stages);
        start(total, 1);
        before = at.stage;
        next();
        products_wait<1>();
      }
      products_wait<0>(total);
      arrive(empty(before), lane == 0 && before < p.stages);
      if (unit < end) {
        arrival();
        start(total, 0);
        products_wait<0>(total);
        unit++;
      }
      if constexpr (apart) addApart(total, slice);
      else add(sum, total, slice);
    }
    if constexpr (apart)
      UNROLL for (u32 i = 0; i < NT; i++) {
        float v[4];
        get(v, exchange + i * 512 + lane * 16);
        UNROLL for (u32 e = 0; e < 4; e++) sum[i * 4 + e] = v[e];
      }
    store(sum);
  }

  // addApart adds a slice to the sums that the warp has in shared memory.
  METHOD void addApart(const float (&total)[NT][4], u32 round) const {
    UNROLL for (u32 i = 0; i < NT; i++) {
      const u32 at = exchange + i * 512 + lane * 16;
      float v[4] = {-0.f, -0.f, -0.f, -0.f};
      if (round > 0) get(v, at);
      UNROLL for (u32 e = 0; e < 4; e++) v[e] += total[i][e];
      put_at(at, v);
    }
  }

  // work multiplies a team's slices, and stores this warp's part of the sums.
  METHOD void work() const {
    Strip s = stripAt(p, stripFirst + strip);
    // A strip that is not there multiplies some weights, and is dropped.
    const u8 *source = s.there ? of(p.weights, s.weight) + (u64)(s.first / 16) * depth * p.granule : p.weights[0];
    if constexpr (W::rounds) { // weights come by the copy unit
      if (elected()) {
        UNROLL for (u32 i = 0; i < weightStages; i++) barrier_init(arrived + i * 8, 1);
        barriers_made();
      }
      sync_warp();
    }
    if constexpr (straight) workStraight(source);
    else if constexpr (W::rounds) workRounded(source);
    else workScaled(source + lane * 16);
  }

  // workScaled is work by weights whose scales are applied to sums.
  METHOD void workScaled(const u8 *source) const {
    // Weights never change: their copies need not wait for the kernel before.
    Walk walk(*this);
    _Pragma("nounroll") for (u32 slot = 0; slot < weightStages - 1; slot++) copyWeights(walk, source, slot);
    Ring at{p.stages};
    u32 slot = 0;
    auto more = [&]() __attribute__((always_inline)) { copyWeights(walk, source, (slot + weightStages - 1) % weightStages); };
    float sum[own], total[NT][4];
    UNROLL for (u32 i = 0; i < own; i++) sum[i] = -0.f; // which leaves the bits of what is added
    _Pragma("nounroll") for (u32 round = 0; round < 1u << slicesShift; round += teams) {
      u32 slice = round + rank * KG + team;
      UNROLL for (u32 i = 0; i < NT * 4; i++) total[i / 4][i % 4] = 0;
      u32 k = firstOf(slice), end = firstOf(slice + 1);
      _Pragma("nounroll") while (k < end) {
        copy_wait<weightStages - 2>();
        sync_warp();
        wait_phase(full(at.stage), at.phase);
        if (k % 2 == 0 && k + 1 < end) multiply<0, 2 * parts>(total, at, slot, more);
        else if (k % 2 == 0) multiply<0, parts>(total, at, slot, more);
        else multiply<parts, 2 * parts>(total, at, slot, more);
        k = (k | 1) + 1;
        slot = (slot + 1) % weightStages;
        sync_warp();
        arrive(empty(at.stage), lane == 0);
        at.next();
      }
      add(sum, total, round / teams);
    }
    store(sum);
  }

  // Place is where four outputs of a row go: none where it is not there.
  struct Place {
    const float *from; // their sums, in shared memory
    u32 weight, m, out;
    u64 at;
    bool there;
  };

  static constexpr u32 line = 20, box = rowsTile * line; // floats of a row, apart from its neighbours' banks, and of a strip

  static constexpr u32 storeTiles = NT / C; // of 8 rows: a block of a cluster stores some

  METHOD Place placeOf(u32 i) const {
    u32 step = p.gated ? 2 : 1, tile = i / storeTiles * step, line0 = (rank * storeTiles + i % storeTiles) * 8 + lane / 4, row = rowFirst + line0, m = lane % 4 * 4;
    Strip s = stripAt(p, stripFirst + tile);
    u32 out = of(p.out, s.weight);
    bool there = tile < wide * 4 && s.there && row < p.rows && s.first + m < out;
    return {spare + tile * box + line0 * line + m, s.weight, s.first + m, out, (u64)row * out + s.first + m, there};
  }

  // store stores the sums of the tile. They go through shared memory, whose rings
  // nobody reads any more, so that the code is short: code that runs once is waited
  // for.
  METHOD void store(const float (&sum)[own]) const {
    u32 warps = wide * KG * 4;
    sync_group(15, warps * 32);
    UNROLL for (u32 i = 0; i < own; i++) {
      u32 at = (rank * KG + team) * own + i, row = at / 4 * 8 + t * 2 + at % 2, m = g + at % 4 / 2 * 8;
      spare[strip * box + row * line + m] = whole_sum<W>(sum[i], at % 4 / 2);
    }
    sync_group(15, warps * 32);
    dependency_wait();
    _Pragma("nounroll") for (u32 i = tid() / 32 - 4; i < wide * 4 * storeTiles; i += 2 * warps) {
      // Two at a time: what is added to takes its time to come.
      Place place[2] = {placeOf(i), placeOf(i + warps)};
      f32x4 old[2];
      UNROLL for (u32 j = 0; j < 2; j++)
        if (place[j].there && p.add >> place[j].weight & 1) old[j] = load4(of(p.f32, place[j].weight) + place[j].at, place[j]);
      UNROLL for (u32 j = 0; j < 2; j++)
        if (place[j].there) put(place[j], old[j]);
    }
  }

  // whole tells whether four outputs lie in 16 bytes of a row.
  METHOD static bool whole(const void *p, const Place &at, u32 bytes) { return at.out % 4 == 0 && (u64)p % bytes == 0; }

  METHOD static f32x4 load4(const float *f, const Place &at) {
    if (whole(f, at, 16)) return *(const f32x4 *)f;
    u32 left = at.out - at.m;
    return {f[0], left > 1 ? f[1] : 0, left > 2 ? f[2] : 0, left > 3 ? f[3] : 0};
  }

  METHOD void put(const Place &to, const f32x4 &old) const {
    f32x4 sums = *(const f32x4 *)to.from, bias{};
    float v[4] = {sums.x, sums.y, sums.z, sums.w};
    const float *b = of(p.bias, to.weight);
    if (b) bias = load4(b + to.m, to);
    if (b || p.gated) {
      v[0] += bias.x, v[1] += bias.y, v[2] += bias.z, v[3] += bias.w;
    }
    if (p.gated) {
      sums = *(const f32x4 *)(to.from + box);
      float up[4] = {sums.x, sums.y, sums.z, sums.w};
      bias = p.bias[1] ? load4(p.bias[1] + to.m, to) : f32x4{};
      up[0] += bias.x, up[1] += bias.y, up[2] += bias.z, up[3] += bias.w;
      UNROLL for (u32 e = 0; e < 4; e++) v[e] = silu(v[e]) * up[e];
    }
    if (p.add >> to.weight & 1) v[0] += old.x, v[1] += old.y, v[2] += old.z, v[3] += old.w;
    float *f = of(p.f32, to.weight);
    u16 *h = of(p.bf16, to.weight);
    u32 left = to.out - to.m;
    if (f && whole(f + to.at, to, 16)) *(f32x4 *)(f + to.at) = f32x4{v[0], v[1], v[2], v[3]};
    else if (f) {
      UNROLL for (u32 e = 0; e < 4; e++)
        if (e < left) f[to.at + e] = v[e];
    }
    if (h && whole(h + to.at, to, 8)) *(u32x2 *)(h + to.at) = u32x2{pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])};
    else if (h) {
      UNROLL for (u32 e = 0; e < 4; e++)
        if (e < left) h[to.at + e] = (u16)pack_bf16(v[e], 0);
    }
  }
};

// tiled runs a kernel whose inputs are cut into so many slices.
template <class W, u32 NT, u32 KG, u32 C> DEV void tiled(const Projection &p, u32 slices, u8 *shared) {
  using T = Tiler<W, NT, KG, C>;
  u32 warp = shfl(tid() / 32, 0), warpgroup = warp / 4, wide = (bdim() / 128 - 1) / KG;
  launch_dependents();
  T s{p, slices == 16 ? 4u : 3u, wide};
  s.lane = tid() % 32;
  s.g = s.lane / 4;
  s.t = s.lane % 4;
  s.depth = (p.in + W::inputs - 1) / W::inputs;
  s.units = s.depth * T::perGranule;
  s.rank = C > 1 ? cluster_rank() : 0;
  s.stripFirst = bid() / C / p.slices * wide * 4;
  s.rowFirst = bid() / C % p.slices * T::rowsTile;
  s.pairBytes = 2 / T::perGranule * p.granule;
  s.team = KG == 1 ? 0 : warpgroup == 0 ? warp % KG : (warpgroup - 1) / wide;
  s.strip = warpgroup == 0 ? 0 : (warpgroup - 1) % wide * 4 + warp % 4;
  // Barriers; the rings of inputs, of weights and of sums of inputs; exchanged sums.
  u32 base = (shared_address(shared) + 1023) / 1024 * 1024;
  u8 *at = shared + (base - shared_address(shared));
  s.barriers = base + s.team * 256;
  constexpr bool exchanges = T::teams > 1;
  u32 offset = exchanges ? 2048 : 1024;
  const u32 arrived = base + offset - 640; // of 20 strips
  s.spare = (float *)(at + offset);
  s.rows = base + offset + s.team * p.stages * 2 * T::unitRows;
  offset += KG * p.stages * 2 * T::unitRows;
  u32 mine = offset + (s.team * wide * 4 + s.strip) * T::weightStages * s.pairBytes;
  s.weights = base + mine;
  s.weightsAt = at + mine;
  offset += KG * wide * 4 * T::weightStages * s.pairBytes;
  s.foldAt = (float *)(at + offset) + s.team * p.stages * T::foldSums;
  offset += KG * p.stages * T::foldSums * 4;
  u32 which = s.team * wide * 4 + s.strip;
  s.exchange = base + offset + which * T::teams * T::own * 128;
  s.there = base + 1024 + which * 16;
  s.arrived = arrived + which * 32;
  if (tid() == 0) {
    if (exchanges) {
      _Pragma("nounroll") for (u32 i = 0; i < KG * wide * 8; i++) barrier_init(base + 1024 + i * 8, i % 2 ? C : 1);
    }
    _Pragma("nounroll") for (u32 i = 0; i < KG * p.stages; i++) {
      u32 barrier = base + i / p.stages * 256 + i % p.stages * 8;
      barrier_init(barrier, 1);
      barrier_init(barrier + 64, T::sharers);
      barrier_init(barrier + 128, wide * 4);
    }
    barriers_made();
  }
  if (C > 1) cluster_arrive();
  sync();
  if (warpgroup == 0) {
    fewer_registers<T::fillRegisters>();
    s.fill(warp / KG);
  } else {
    more_registers<T::registers>();
    s.work();
  }
}

#define TILED_AS(name, W, NT, KG, C)                                                                                \
  HOPPER_KERNEL((Tiler<W, NT, KG, C>::mostThreads))                                                                 \
  void name(const u8 *w0, const u8 *w1, const u8 *w2, float *f0, float *f1, float *f2, u16 *h0, u16 *h1, u16 *h2,   \
            const float *bias0, const float *bias1, const float *bias2, u32 out0, u32 out1, u32 out2, u32 add,      \
            u32 gated, const u16 *x, u32 in, u32 rows, u32 granule, u32 shift, u32 stages, u32 slices, u32 parts) { \
    DYNAMIC_SHARED(name, shared);                                                                                   \
    Projection p{{w0, w1, w2}, {f0, f1, f2}, {h0, h1, h2}, {bias0, bias1, bias2}, {out0, out1, out2}, add, gated,   \
                 x, in, rows, granule, shift, stages, 0, slices};                                                   \
    tiled<W, NT, KG, C>(p, parts, shared);                                                                          \
  }                                                                                                                 \
  REGISTER(name)
#define TILED(name, W, NT, KG) TILED_AS(name##_##NT##_##KG, W, NT, KG, 1)
// Kernels whose names end in _cC run in clusters of C blocks (build.sh).
#define TILED_CLUSTER(name, W, NT, C) TILED_AS(name##_##NT##_1_c##C, W, NT, 1, C)

// Forms for weights alone that are rounded.
#define TILED_ROUNDED(name, W) \
  TILED(name, W, 1, 1)         \
  TILED(name, W, 16, 1)

#define TILED_ALL(name, W) \
  TILED(name, W, 2, 1)     \
  TILED(name, W, 4, 1)     \
  TILED(name, W, 4, 4)     \
  TILED(name, W, 8, 1)     \
  TILED(name, W, 8, 2)     \
  TILED_CLUSTER(name, W, 4, 4)
// A block has no room for the weights of 8 bits of four teams.
#define TILED_BYTES(name, W) \
  TILED(name, W, 2, 1)       \
  TILED(name, W, 4, 1)       \
  TILED(name, W, 8, 1)       \
  TILED(name, W, 8, 2)       \
  TILED_CLUSTER(name, W, 4, 4)
