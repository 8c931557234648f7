// The sum of parts that the devices of one host made, which write them into each other's
// memory: an exchange and the sum in one launch.
#include "gpu.cuh"

// Exchange is what a rank needs of the others. boxes[r] is rank r's mailbox, a place for
// the parts of each rank in even rounds, then in odd ones: [2][count][room] pairs of a
// number and the round that it is of, so that a number needs no fence to be seen as
// there: 8 bytes are written at once. A rank is at most one round ahead of the slowest,
// as it needs that one's part to end a round, so two places are enough.
struct Exchange {
  const u64 *boxes; // [count]
  u32 *round;       // how many rounds are done; blocks that are done with this one
  const u32 *stop;  // of the host: not 0 when nobody is to be waited for any more
  u32 rank, count, room, pad;
};

// A pair of numbers with their rounds, written and read 16 bytes at once.
DEV void send(u64 to, float a, float b, u32 round);
DEV bool arrived(u64 from, u32 round, float &a, float &b);
// stopped asks the host, which takes a microsecond.
DEV bool stopped(const u32 *stop);
DEV u32 done_rounds(const u32 *round) { return load_l2(round); }

DEV u64 place(const Exchange &e, u32 box, u32 round, u32 from) { return e.boxes[box] + 8 * (u64)e.room * ((round & 1) * e.count + from); }

// push writes this rank's part of n into the others' mailboxes.
DEV void push(const Exchange &e, const float *own, u32 n) {
  const u32 round = done_rounds(e.round) + 1;
  for (u32 p = 1; p < e.count; p++) {
    const u64 to = place(e, (e.rank + p) % e.count, round, e.rank);
    for (u32 i = (bid() * 256 + tid()) * 2; i < n; i += gdim() * 512) send(to + 8 * (u64)i, own[i], i + 1 < n ? own[i + 1] : 0, round);
  }
}

// take adds all ranks' parts to dst, in the order of the ranks, as they come.
DEV void take(const Exchange &e, float *dst, const float *own, u32 n) {
  const u32 round = done_rounds(e.round) + 1;
  for (u32 i = (bid() * 256 + tid()) * 2; i < n; i += gdim() * 512) {
    const bool two = i + 1 < n;
    float a = dst[i], b = two ? dst[i + 1] : 0;
    for (u32 p = 0; p < e.count; p++) {
      float x, y;
      if (p == e.rank) {
        x = own[i];
        y = two ? own[i + 1] : 0;
      } else {
        const u64 from = place(e, e.rank, round, p) + 8 * (u64)i;
        u32 tries = 0;
        while (!arrived(from, round, x, y))
          if (++tries % 4096 == 0 && stopped(e.stop)) break;
      }
      a += x;
      b += y;
    }
    dst[i] = a;
    if (two) dst[i + 1] = b;
  }
  // The last block ends the round: all have read it.
  sync();
  if (tid() == 0 && atomic_add(&e.round[1], 1) == gdim() - 1) {
    e.round[1] = 0;
    e.round[0] = round;
  }
}

#ifdef __NVPTX__
DEV void send(u64 to, float a, float b, u32 round) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(to), "r"(__builtin_bit_cast(u32, a)), "r"(round), "r"(__builtin_bit_cast(u32, b)) : "memory");
}
DEV bool arrived(u64 from, u32 round, float &a, float &b) {
  u32x4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
  a = __builtin_bit_cast(float, v.x);
  b = __builtin_bit_cast(float, v.z);
  return v.y == round && v.w == round;
}
DEV bool stopped(const u32 *stop) {
  u32 v;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(stop) : "memory");
  return v;
}

// dst[n] += the parts of all ranks, of which own[n] is this one's.
KERNEL(256) void exchange_partials(float *dst, const float *own, const Exchange *of, u32 n) {
  launch_dependents();
  const Exchange e = *of; // as it was when the ranks were connected
  dependency_wait();
  push(e, own, n);
  take(e, dst, own, n);
}
#else
// The emulator runs one device's launch at a time: what waits for others is a kernel of
// its own, which begins when all that it reads has come.
DEV void send(u64 to, float a, float b, u32 round) {
  u32 *p = (u32 *)to;
  p[0] = __builtin_bit_cast(u32, a);
  p[2] = __builtin_bit_cast(u32, b);
  p[1] = p[3] = round;
}
DEV bool arrived(u64 from, u32 round, float &a, float &b) {
  const u32 *p = (const u32 *)from;
  a = __builtin_bit_cast(float, p[0]);
  b = __builtin_bit_cast(float, p[2]);
  return p[1] == round && p[3] == round;
}
DEV bool stopped(const u32 *stop) { return *stop; }

KERNEL(256) void exchange_partials(float *, const float *own, const Exchange *of, u32 n) {
  dependency_wait();
  push(*of, own, n);
}
KERNEL(256) void take_partials(float *dst, const float *own, const Exchange *of, u32 n) {
  dependency_wait();
  take(*of, dst, own, n);
}
static bool ready(const emulator::Slot *arguments) {
  const Exchange &e = *(const Exchange *)arguments[2];
  if (*e.stop) return true;
  const u32 n = (u32)arguments[3], round = *e.round + 1;
  for (u32 p = 0; p < e.count; p++)
    for (u32 i = 0; p != e.rank && i < n; i += 2) {
      float a, b;
      if (!arrived(place(e, e.rank, round, p) + 8 * (u64)i, round, a, b)) return false;
    }
  return true;
}
REGISTER(take_partials)
#endif

REGISTER(exchange_partials)
#ifndef __NVPTX__
WAITS(exchange_partials, take_partials, ready)
#endif
