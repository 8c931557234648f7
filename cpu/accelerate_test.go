package cpu

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"windrow/cpu/kernels"
	"windrow/quant"
)

// plainSgemm is an sgemm whose order is none of ours: from the last to the first.
func plainSgemm(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	for i := range m {
		x := a[i*lda : i*lda+k]
		for j := range n {
			w := b[j*ldb : j*ldb+k]
			sum := float32(0)
			for l := k - 1; l >= 0; l-- {
				sum += x[l] * w[l]
			}
			c[i*ldc+j] = sum
		}
	}
}

func TestAccelerateAgrees(t *testing.T) {
	if !agrees(plainSgemm) {
		t.Error("a product in another order is refused")
	}
	type args struct {
		m, n, k       int
		a             []float32
		lda           int
		b             []float32
		ldb           int
		c             []float32
		ldc           int
		before, after []float32 // c
	}
	for name, fault := range map[string]func(v *args){
		"adds to c":            func(v *args) { v.after[0] += v.before[0] },
		"rows of c are narrow": func(v *args) { plainSgemm(v.m, v.n, v.k, v.a, v.lda, v.b, v.ldb, v.c, v.n) },
		"rows of a are narrow": func(v *args) { plainSgemm(v.m, v.n, v.k, v.a, v.k, v.b, v.ldb, v.c, v.ldc) },
		"rows of b are narrow": func(v *args) { plainSgemm(v.m, v.n, v.k, v.a, v.lda, v.b, v.k, v.c, v.ldc) },
		"a row is left out":    func(v *args) { v.after[(v.m-1)*v.ldc] = v.before[0] },
		"a column is left out": func(v *args) { v.after[v.n-1] = v.before[0] },
		"writes between rows":  func(v *args) { v.after[v.n] = 0 },
		"a product less":       func(v *args) { plainSgemm(v.m, v.n, v.k-1, v.a, v.lda, v.b, v.ldb, v.c, v.ldc) },
		"rounds to bf16": func(v *args) {
			a := make([]float32, len(v.a))
			for i, x := range v.a {
				a[i] = quant.BF16ToF32(quant.F32ToBF16(x))
			}
			plainSgemm(v.m, v.n, v.k, a, v.lda, v.b, v.ldb, v.c, v.ldc)
		},
	} {
		if agrees(func(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
			before := append([]float32(nil), c...)
			plainSgemm(m, n, k, a, lda, b, ldb, c, ldc)
			fault(&args{m, n, k, a, lda, b, ldb, c, ldc, before, c})
		}) {
			t.Errorf("%s: taken for right", name)
		}
	}
}

// clock is a time that only tests advance.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func TestAccelerateMeasure(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name         string
		ours, theirs []time.Duration // of trial after trial; the last goes on
		want         bool
		trials       int
	}{
		{"twice as fast", []time.Duration{2 * ms}, []time.Duration{ms}, true, 4},
		{"as fast", []time.Duration{2 * ms}, []time.Duration{2 * ms}, false, 4},
		{"hardly faster", []time.Duration{12 * ms / 10}, []time.Duration{ms}, false, 4},
		{"faster by a third", []time.Duration{4 * ms / 3}, []time.Duration{ms}, true, 4},
		{"slower", []time.Duration{ms}, []time.Duration{3 * ms}, false, 4},
		{"ours begins slowly", []time.Duration{8 * ms, ms}, []time.Duration{ms}, false, 4},
		{"theirs begins slowly", []time.Duration{3 * ms}, []time.Duration{8 * ms, ms}, true, 4},
		{"a slow machine", []time.Duration{30 * ms}, []time.Duration{10 * ms}, true, 1},
		{"a rather slow machine", []time.Duration{9 * ms}, []time.Duration{4 * ms}, true, 3},
	} {
		k, calls := &clock{}, [2]int{}
		run := func(i int, times []time.Duration) func() {
			return func() {
				k.t = k.t.Add(times[min(calls[i], len(times)-1)])
				calls[i]++
			}
		}
		if got := measuredFaster(k.now, run(0, c.ours), run(1, c.theirs)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if calls != [2]int{c.trials, c.trials} {
			t.Errorf("%s: %v trials, want %d", c.name, calls, c.trials)
		}
		if took := k.t.Sub(time.Time{}); took > measureTime {
			t.Errorf("%s: took %v, want %v at most", c.name, took, measureTime)
		}
	}
}

// fakeAccelerate opens an sgemm that counts its calls and, of large products,
// does nothing; by faster it is faster, or not, whatever the machine is at.
func fakeAccelerate(t *testing.T, calls *int, faster bool) *blasChooser {
	return &blasChooser{
		open: func() (sgemm, error) {
			return func(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
				*calls++
				if m*n*k <= 1<<20 {
					plainSgemm(m, n, k, a, lda, b, ldb, c, ldc)
				}
			}, nil
		},
		faster: func(ours, theirs func()) bool {
			before := *calls
			ours()
			if *calls != before {
				t.Error("what is measured as ours is Accelerate")
			}
			theirs()
			if *calls == before {
				t.Error("what is measured as Accelerate is ours")
			}
			return faster
		},
	}
}

// bestTable is the best kernel table, if that is not the reference.
func bestTable(t *testing.T) *kernels.Table {
	t.Helper()
	k, err := kernels.ByName("")
	if err != nil {
		t.Fatal(err)
	}
	if k.Name == "go" {
		t.Skip("this machine runs no table but the reference")
	}
	return k
}

func TestAccelerateChoice(t *testing.T) {
	best := bestTable(t)
	const everyRow = 1 << 20
	missing := func() *blasChooser {
		return &blasChooser{faster: measured, open: func() (sgemm, error) { return nil, errNoAccelerate }}
	}
	wrong := func() *blasChooser {
		return &blasChooser{faster: measured, open: func() (sgemm, error) {
			return func(int, int, int, []float32, int, []float32, int, []float32, int) {}, nil
		}}
	}
	var calls int
	for _, c := range []struct {
		name    string
		chooser *blasChooser
		setting string
		k       *kernels.Table
		rows    int    // BatchInvariantRows
		note    string // part of Description
		err     string
	}{
		{"missing", missing(), "1", best, everyRow, "Accelerate not used: it is part of macOS alone", ""},
		{"missing, unasked", missing(), "", best, everyRow, "", ""},
		{"missing, demanded", missing(), "always", best, 0, "", "WINDROW_ACCELERATE=always: Accelerate is part of macOS alone"},
		{"wrong", wrong(), "1", best, everyRow, "Accelerate not used: it multiplies wrongly here", ""},
		{"wrong, demanded", wrong(), "always", best, 0, "", "WINDROW_ACCELERATE=always: Accelerate multiplies wrongly here"},
		{"the reference", fakeAccelerate(t, &calls, true), "1", kernels.Reference(), everyRow, "not for the reference", ""},
		{"demanded", fakeAccelerate(t, &calls, false), "always", best, accelerateRows, "Accelerate in forwards of more than 128 rows, not yet run on hardware", ""},
		{"no setting", missing(), "yes", best, 0, "", `WINDROW_ACCELERATE: "yes", want 1 (where it is measured to be faster: the default), always, or 0`},
		{"faster", fakeAccelerate(t, &calls, true), "1", best, accelerateRows, "Accelerate in forwards", ""},
		{"faster, unasked", fakeAccelerate(t, &calls, true), "", best, accelerateRows, "Accelerate in forwards", ""},
		{"slower, unasked", fakeAccelerate(t, &calls, false), "", best, everyRow, "Accelerate not used: it was not measured to be faster", ""},
		{"slower", fakeAccelerate(t, &calls, false), "1", best, everyRow, "Accelerate not used: it was not measured to be faster", ""},
	} {
		b, err := newBackend(c.k, false, 2, c.chooser, c.setting, nil)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: error %v, want %s", c.name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		f := b.Features()
		if used := b.blas.product != nil; used != (c.rows == accelerateRows) || used != strings.HasSuffix(f.Kernels, ", accelerate") {
			t.Errorf("%s: used %v, kernels %s", c.name, used, f.Kernels)
		}
		if f.BatchInvariantRows != c.rows || !strings.Contains(f.Description, c.note) {
			t.Errorf("%s: %d rows, %s; want %d and %q", c.name, f.BatchInvariantRows, f.Description, c.rows, c.note)
		}
		before := calls
		again, err := newBackend(c.k, false, 2, c.chooser, c.setting, nil)
		if err != nil || calls != before || again.Features() != f {
			t.Errorf("%s: the second backend of a process: %v, %d calls, %s", c.name, err, calls-before, again.Features().Description)
		}
		b.Close()
		again.Close()
	}
}

// TestAccelerateRefused: nobody opens it, and every row keeps its bits.
func TestAccelerateRefused(t *testing.T) {
	b, err := newBackend(bestTable(t), false, 1, &blasChooser{faster: measured, open: func() (sgemm, error) {
		t.Error("opened")
		return nil, errors.New("opened")
	}}, "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if f := b.Features(); f.BatchInvariantRows != 1<<20 || strings.Contains(f.Description, "Accelerate") {
		t.Errorf("%d rows, %s", f.BatchInvariantRows, f.Description)
	}
}

// verdicts are kept in memory.
type verdicts map[string]bool

func (v verdicts) Read(key string) (faster, known bool) { faster, known = v[key]; return }
func (v verdicts) Write(key string, faster bool)        { v[key] = faster }

// TestAccelerateVerdict: what one start measured, the next one takes, for the
// same kernels and threads alone.
func TestAccelerateVerdict(t *testing.T) {
	kept := verdicts{}
	var calls int
	used := func(threads int, faster bool) bool {
		t.Helper()
		b, err := newBackend(bestTable(t), false, threads, fakeAccelerate(t, &calls, faster), "", kept) // a chooser is a start
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		return b.blas.product != nil
	}
	if !used(2, true) || !used(2, false) || len(kept) != 1 {
		t.Errorf("found faster, then forgotten: %v", kept)
	}
	if used(1, false) || used(1, true) || len(kept) != 2 {
		t.Errorf("found slower, then forgotten: %v", kept)
	}
	// Where it cannot be used nothing is kept.
	if _, err := newBackend(bestTable(t), false, 3, &blasChooser{open: func() (sgemm, error) { return nil, errNoAccelerate }}, "", kept); err != nil || len(kept) != 2 {
		t.Errorf("without it: %v, %v", err, kept)
	}
}

// equalRows compares rows of floats.
func equalRows(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}
