package metal

import (
	"slices"
	"testing"

	"windrow/backend"
)

func testLinear(dt backend.DType, group, out, in int) linear {
	return linear{weight: weight{dtype: dt, out: out, in: in, group: group, data: view{elem: elemBytes}}}
}

// Each number of rows has its kernel, and windows of a decode forward are never
// multiplied by the kernels of prefill.
func TestProjectKernels(t *testing.T) {
	w, x, dst := testLinear(backend.Affine4, 64, 4096, 2048), view{elem: elemBF16}, view{elem: elemF32}
	for _, c := range []struct {
		rows   int
		decode bool
		kernel string
		groups size3
		lines  int
	}{
		{1, true, "project_8_affine4_bf16", size3{1, 128, 1}, 4 * 40}, {8, true, "project_8_affine4_bf16", size3{1, 128, 1}, 4 * 40},
		{9, true, "project_16_affine4_bf16", size3{1, 128, 1}, 4 * 48}, {16, true, "project_16_affine4_bf16", size3{1, 128, 1}, 4 * 48},
		{17, true, "project_32_affine4_bf16", size3{1, 256, 1}, 4 * 48}, {33, true, "project_32_affine4_bf16", size3{2, 256, 1}, 4 * 48},
		{1, false, "project_8_affine4_bf16", size3{1, 128, 1}, 4 * 40}, {32, false, "project_32_affine4_bf16", size3{1, 256, 1}, 4 * 48},
		{128, false, "project_32_affine4_bf16", size3{4, 256, 1}, 4 * 48}, {129, false, "prefill_affine4_bf16", size3{3, 64, 1}, 128},
		{129, true, "project_32_affine4_bf16", size3{5, 256, 1}, 4 * 48},
	} {
		var r recorder
		projectAdd(&r, dst, x, c.rows, w, c.decode)
		if d := r[0]; len(r) != 1 || d.file != "project_affine4" || d.kernel != c.kernel || d.groups != c.groups || d.threads != (size3{128, 1, 1}) || d.threadgroup != c.lines*lineBytes {
			t.Errorf("%d rows, decode %v: %d dispatches, %s of %v groups of %v, %d bytes each", c.rows, c.decode, len(r), d.kernel, d.groups, d.threads, d.threadgroup)
		}
	}
}

// Rows of floats that are no multiples of what is loaded at once, or do not begin
// at one, have one kernel for all.
func TestProjectRagged(t *testing.T) {
	x, dst := view{elem: elemBF16}, view{elem: elemF32}
	odd := testLinear(backend.BF16, 0, 64, 64)
	odd.data.offset = 2
	for i, c := range []struct {
		x view
		w linear
	}{{x, testLinear(backend.BF16, 0, 64, 60)}, {x.at(8), testLinear(backend.BF16, 0, 64, 64)}, {x, odd}} {
		for _, rows := range []int{1, 40} {
			var r recorder
			projectAdd(&r, dst, c.x, rows, c.w, false)
			if d := r[0]; d.kernel != "ragged_bf16_bf16" || d.groups != (size3{(rows + 31) / 32, 4, 1}) {
				t.Errorf("case %d, %d rows: %s of %v groups", i, rows, d.kernel, d.groups)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("x of quantised weights from byte 8 on is taken")
		}
	}()
	projectAdd(&recorder{}, dst, x.at(8), 1, testLinear(backend.Q8_0, 0, 64, 64), true)
}

func TestProjectMatvec(t *testing.T) {
	useMatvec.Store(true)
	defer useMatvec.Store(false)
	gate, x, dst := testLinear(backend.BF16, 0, 1001, 64), view{elem: elemF32}, view{elem: elemF32}
	for _, c := range []struct {
		rows   int
		decode bool
		kernel string
	}{{1, true, "matvec_bf16_f32"}, {2, true, "project_8_bf16_f32"}, {1, false, "project_8_bf16_f32"}} {
		var r recorder
		gatedProject(&r, dst, x, c.rows, gate, gate, c.decode)
		if len(r) != 1 || r[0].kernel != c.kernel {
			t.Errorf("%d rows, decode %v: %d dispatches, %s", c.rows, c.decode, len(r), r[0].kernel)
		}
		if c.kernel == "matvec_bf16_f32" && r[0].groups != (size3{126, 1, 1}) { // 501 pairs of outputs, 4 a group
			t.Errorf("%v groups", r[0].groups)
		}
	}
}

// Weights of one format go together, in their order; bytes and operations are
// those of each alone, but for x.
func TestProjectTogether(t *testing.T) {
	x := view{elem: elemBF16}
	a, b, c := testLinear(backend.Affine8, 128, 256, 512), testLinear(backend.Affine8, 128, 64, 512), testLinear(backend.Q8_0, 0, 64, 512)
	for _, tc := range []struct {
		w       []linear
		kernels []string
	}{
		{[]linear{a, b, b}, []string{"project_16_affine8_bf16"}},
		{[]linear{a, b, c}, []string{"project_16_affine8_bf16", "project_16_q8_0_bf16"}},
		{[]linear{a, c, b}, []string{"project_16_affine8_bf16", "project_16_q8_0_bf16", "project_16_affine8_bf16"}},
		{[]linear{a, b, b, b}, []string{"project_16_affine8_bf16", "project_16_affine8_bf16"}},
		{[]linear{a, testLinear(backend.Affine8, 64, 64, 512)}, []string{"project_16_affine8_bf16", "project_16_affine8_bf16"}},
	} {
		const rows = 12
		dst := make([]view, len(tc.w))
		want := cost{read: int64(len(tc.kernels)) * rows * 512 * 2}
		for i, w := range tc.w {
			dst[i] = view{elem: elemF32}
			n := int64(w.out) * 512
			want.written += 4 * rows * int64(w.out)
			want.flops += 2 * rows * n
			if w.dtype.Affine() {
				want.read += n + n/int64(w.group)*4
			} else {
				want.read += n / 32 * 34
			}
		}
		var r recorder
		project(&r, dst, x, rows, tc.w, true)
		var kernels []string
		var got cost
		for _, d := range r {
			kernels = append(kernels, d.kernel)
			got.read, got.written, got.flops = got.read+d.cost.read, got.written+d.cost.written, got.flops+d.cost.flops
		}
		if !slices.Equal(kernels, tc.kernels) || got != want {
			t.Errorf("%d weights: %v costing %+v, want %v costing %+v", len(tc.w), kernels, got, tc.kernels, want)
		}
	}
}
