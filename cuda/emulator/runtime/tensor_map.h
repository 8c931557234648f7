// What the emulated driver encodes a tensor map as, in the 128 bytes of the real
// one: matrices of 16-bit elements whose rows are copied in the 128-byte swizzle.
#pragma once

namespace emulator {

struct TensorMap {
  unsigned long long mark; // tells a map from other bytes
  const unsigned char *data;
  unsigned long long columns, rows, stride; // elements, rows, bytes of a row
  unsigned box_columns, box_rows;
};
constexpr unsigned long long tensor_map_mark = 0x70616d726f736e65ull;

} // namespace emulator
