// The part of cuBLASLt that the engine uses: bf16 products with f32 sums, of
// a transposed first operand. Descriptions are checked; the product is a
// kernel in the stream, so that it is captured, ordered and bounded as others.
#include <string.h>

#include "driver.h"

using namespace emulator;

namespace {

// Codes of cublasStatus_t.
enum : int { BLAS_SUCCESS = 0, BLAS_NOT_INITIALIZED = 1, BLAS_INVALID_VALUE = 7, BLAS_EXECUTION_FAILED = 13, BLAS_NOT_SUPPORTED = 15 };
// Numbers of cudaDataType_t and cublasComputeType_t.
enum : int { TYPE_F32 = 0, TYPE_BF16 = 14, SUMS_F32 = 68 };

struct Handle { int device; };
struct Operation { int sums, scale, transpose_a; };
struct Layout { int type; u64 rows, columns; int64_t pitch; };
struct Preference { u64 workspace; u32 alignment[4]; };
struct Algorithm { u64 data[8]; };
struct Choice { Algorithm algorithm; size_t workspace; int status; float waves; int unused[4]; };

constexpr u64 algorithm_mark = 0x77696e64726f77; // of an algorithm that the heuristic gave
constexpr size_t workspace_wanted = 4096;

float widened(uint16_t h) {
  u32 u = u32(h) << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

uint16_t rounded(float f) {
  u32 u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return uint16_t(u >> 16 | 64);
  return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

// product: d[rows, out] = x[rows, in] · w[out, in]ᵀ + beta · d, a row for each lane in turn.
void product(const Slot *a) {
  auto *w = (const uint16_t *)a[0], *x = (const uint16_t *)a[1];
  u64 d = a[2], out = a[3], rows = a[4], in = a[5];
  bool f32 = a[6], accumulate = a[7];
  for (u64 r = current->index; r < rows; r += wave_lanes)
    for (u64 o = 0; o < out; o++) {
      float part[16] = {};
      u64 k = 0;
      for (; k + 16 <= in; k += 16)
        for (u64 i = 0; i < 16; i++) part[i] += widened(x[r * in + k + i]) * widened(w[o * in + k + i]);
      for (; k < in; k++) part[0] += widened(x[r * in + k]) * widened(w[o * in + k]);
      float sum = 0;
      for (float p : part) sum += p;
      if (f32) {
        float *t = (float *)d + r * out + o;
        *t = accumulate ? *t + sum : sum;
      } else {
        uint16_t *t = (uint16_t *)d + r * out + o;
        *t = rounded(accumulate ? widened(*t) + sum : sum);
      }
    }
}

const unsigned char product_sizes[8] = {8, 8, 8, 8, 8, 8, 8, 8};
const Kernel product_kernel{"cublasLtMatmul", product, {nullptr, nullptr}, product_sizes, 8, nullptr};
const Function product_function{&product_kernel, wave_lanes, 0, 0, false};

size_t bytes(const Layout &l) { return l.rows * l.columns * (l.type == TYPE_F32 ? 4 : 2); }

// shape_fits tells whether the layouts are those of the engine's products.
bool shape_fits(const Operation &o, const Layout &w, const Layout &x, const Layout &c, const Layout &d) {
  bool same = c.type == d.type && c.rows == d.rows && c.columns == d.columns && c.pitch == d.pitch;
  bool dense = w.pitch == int64_t(w.rows) && x.pitch == int64_t(x.rows) && d.pitch == int64_t(d.rows);
  return same && dense && o.transpose_a == 1 && w.type == TYPE_BF16 && x.type == TYPE_BF16 && (d.type == TYPE_BF16 || d.type == TYPE_F32) &&
      w.rows == x.rows && d.rows == w.columns && d.columns == x.columns;
}

bool aligned(const void *p, u32 to) { return !to || (uintptr_t)p % to == 0; }

} // namespace

extern "C" EMULATOR_API size_t cublasLtGetVersion() { return 130000; }

API cublasLtCreate(Handle **h) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (need_context("cublasLtCreate")) return BLAS_NOT_INITIALIZED;
  *h = new Handle{0};
  return BLAS_SUCCESS;
}

API cublasLtDestroy(Handle *h) {
  delete h;
  return BLAS_SUCCESS;
}

API cublasLtMatmulDescCreate(Operation **o, int sums, int scale) {
  if (sums != SUMS_F32 || scale != TYPE_F32) return BLAS_NOT_SUPPORTED;
  *o = new Operation{sums, scale, 0};
  return BLAS_SUCCESS;
}

API cublasLtMatmulDescSetAttribute(Operation *o, int attribute, const void *value, size_t size) {
  if (attribute != 3 || size != 4) return BLAS_INVALID_VALUE;
  memcpy(&o->transpose_a, value, 4);
  return BLAS_SUCCESS;
}

API cublasLtMatmulDescDestroy(Operation *o) {
  delete o;
  return BLAS_SUCCESS;
}

API cublasLtMatrixLayoutCreate(Layout **l, int type, u64 rows, u64 columns, int64_t pitch) {
  if (!rows || !columns || pitch < int64_t(rows)) return BLAS_INVALID_VALUE;
  *l = new Layout{type, rows, columns, pitch};
  return BLAS_SUCCESS;
}

API cublasLtMatrixLayoutDestroy(Layout *l) {
  delete l;
  return BLAS_SUCCESS;
}

API cublasLtMatmulPreferenceCreate(Preference **p) {
  *p = new Preference{0, {256, 256, 256, 256}};
  return BLAS_SUCCESS;
}

API cublasLtMatmulPreferenceSetAttribute(Preference *p, int attribute, const void *value, size_t size) {
  if (attribute == 1 && size == 8) {
    memcpy(&p->workspace, value, 8);
    return BLAS_SUCCESS;
  }
  if (attribute >= 5 && attribute <= 8 && size == 4) {
    memcpy(&p->alignment[attribute - 5], value, 4);
    return BLAS_SUCCESS;
  }
  return BLAS_INVALID_VALUE;
}

API cublasLtMatmulPreferenceDestroy(Preference *p) {
  delete p;
  return BLAS_SUCCESS;
}

API cublasLtMatmulAlgoGetHeuristic(Handle *h, Operation *o, Layout *w, Layout *x, Layout *c, Layout *d, Preference *p, int wanted, Choice *choices, int *found) {
  *found = 0;
  if (!h || !o || !p || wanted < 1) return BLAS_INVALID_VALUE;
  if (!shape_fits(*o, *w, *x, *c, *d) || p->workspace < workspace_wanted) return BLAS_NOT_SUPPORTED;
  for (u32 a : p->alignment)
    if (a < 2 || a & (a - 1)) return BLAS_INVALID_VALUE;
  Choice choice = {};
  choice.algorithm.data[0] = algorithm_mark;
  choice.algorithm.data[1] = w->rows ^ w->columns << 20 ^ x->columns << 40;
  choice.algorithm.data[2] = p->alignment[0];
  choice.workspace = workspace_wanted;
  *choices = choice;
  *found = 1;
  return BLAS_SUCCESS;
}

API cublasLtMatmul(Handle *h, Operation *o, const float *alpha, const void *w, Layout *lw, const void *x, Layout *lx, const float *beta, const void *c, Layout *lc, void *d, Layout *ld, const Algorithm *algorithm, void *workspace, size_t workspace_bytes, Stream *s) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (!h || need_context("cublasLtMatmul")) return BLAS_NOT_INITIALIZED;
  if (!shape_fits(*o, *lw, *lx, *lc, *ld)) return BLAS_NOT_SUPPORTED;
  if (*alpha != 1 || (*beta != 0 && *beta != 1) || c != d) return BLAS_INVALID_VALUE;
  if (algorithm->data[0] != algorithm_mark || algorithm->data[1] != (lw->rows ^ lw->columns << 20 ^ lx->columns << 40)) return BLAS_INVALID_VALUE;
  u32 alignment = u32(algorithm->data[2]);
  if (!aligned(w, alignment) || !aligned(x, alignment) || !aligned(d, alignment)) return BLAS_INVALID_VALUE;
  if (workspace_bytes < workspace_wanted || !on_device(workspace, workspace_bytes)) return BLAS_INVALID_VALUE;
  if (!on_device(w, bytes(*lw)) || !on_device(x, bytes(*lx)) || !on_device(d, bytes(*ld))) return BLAS_INVALID_VALUE;
  Work k{Work::launch};
  k.function = &product_function;
  k.arguments = {(u64)w, (u64)x, (u64)d, ld->rows, ld->columns, lw->rows, u64(ld->type == TYPE_F32), u64(*beta == 1)};
  k.grid[0] = k.grid[1] = k.grid[2] = 1;
  k.lanes = wave_lanes;
  return enqueue("cublasLtMatmul", s, k) ? BLAS_EXECUTION_FAILED : BLAS_SUCCESS;
}
