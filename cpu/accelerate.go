package cpu

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"windrow/backend"
	"windrow/cpu/kernels"
)

// sgemm is a BLAS's product in f32 of row-major matrices, the second one
// transposed: c[i·ldc+j] = Σ_l a[i·lda+l]·b[j·ldb+l] for i < m, j < n, l < k.
// What c held does not count, and what lies between its rows is left alone.
type sgemm func(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int)

// accelerateVariable says when Accelerate, Apple's BLAS, is used: "1", and unset,
// where it is measured to be faster, "always" without measuring, "0" never. See
// docs/adr/0008-accelerate-is-measured.md for what it gives up.
const accelerateVariable = "WINDROW_ACCELERATE"

// accelerateRows is the most rows of a forward that never go to Accelerate, and
// so the most for which a row's bits do not depend on the others: eight
// sequences of 16 rows, or two windows of 64.
const accelerateRows = 128

// Why Accelerate is not used: what it is, has or was.
var (
	errNoAccelerate = errors.New("is part of macOS alone")
	errReference    = errors.New("is not for the reference kernels")
	errWrong        = errors.New("multiplies wrongly here")
	errNotFaster    = errors.New("was not measured to be faster")
)

// blas is what a backend uses of a BLAS; the zero value is none.
type blas struct {
	product sgemm // nil: none
	rows    int   // forwards of more rows than these go to product
	note    string
	wide    [2][]float32 // panels of widened weights
	out     [2][]float32 // panels of outputs
}

// blasKey is what a choice depends on within a process.
type blasKey struct {
	always  bool
	table   string
	threads int
}

// Verdicts keeps what was measured at one start for the next ones, so that they
// choose alike.
type Verdicts interface {
	// Read returns the verdict of a key, if one is known.
	Read(key string) (faster, known bool)
	Write(key string, faster bool)
}

// blasChooser decides whether backends use a BLAS, and remembers it for the
// life of the process.
type blasChooser struct {
	open func() (sgemm, error)
	// faster reports whether theirs is faster than ours, by enough.
	faster func(ours, theirs func()) bool
	mutex  sync.Mutex
	chosen map[blasKey]blas
}

// accelerate is the process's chooser.
var accelerate = blasChooser{open: openAccelerate, faster: measured}

// measured is measuredFaster by the machine's clock.
func measured(ours, theirs func()) bool { return measuredFaster(time.Now, ours, theirs) }

// choose returns what b is to use where accelerateVariable is setting. An error
// is of a setting that is none, or of "always" where that cannot be.
func (c *blasChooser) choose(b *Backend, setting string, kept Verdicts) (blas, error) {
	switch setting {
	case "0":
		return blas{}, nil
	case "", "1", "always":
	default:
		return blas{}, fmt.Errorf("%s: %q, want 1 (where it is measured to be faster: the default), always, or 0", accelerateVariable, setting)
	}
	key := blasKey{setting == "always", b.k.Name, b.pool.workers}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if known, ok := c.chosen[key]; ok {
		return known, nil
	}
	product, err := c.usable(b)
	if err != nil && key.always {
		return blas{}, fmt.Errorf("%s=always: Accelerate %w", accelerateVariable, err)
	}
	if err == nil && !key.always && !c.verdict(b, product, kept) {
		err = errNotFaster
	}
	if setting == "" && errors.Is(err, errNoAccelerate) {
		return blas{}, nil // no news where nobody expects it
	}
	choice := blas{product: product, rows: accelerateRows,
		note: fmt.Sprintf("; Accelerate in forwards of more than %d rows, not yet run on hardware", accelerateRows)}
	if err != nil {
		choice = blas{note: fmt.Sprintf("; Accelerate not used: it %v", err)}
	}
	if c.chosen == nil {
		c.chosen = map[blasKey]blas{}
	}
	c.chosen[key] = choice
	return choice, nil
}

// usable opens the BLAS and tries it.
func (c *blasChooser) usable(b *Backend) (sgemm, error) {
	// Opened first: where there is none, that is all there is to say.
	product, err := c.open()
	if err != nil {
		return nil, err
	}
	if b.k.IsReference() {
		return nil, errReference
	}
	if !agrees(product) {
		return nil, errWrong
	}
	return product, nil
}

// agrees multiplies matrices of odd sizes whose products are exact in f32 in
// any order: numbers of 9 bits, which bf16 would round, 61 to a sum.
func agrees(product sgemm) bool {
	const m, n, k, lda, ldb, ldc = 9, 37, 61, 63, 62, 41
	a, b, c := make([]float32, m*lda), make([]float32, n*ldb), make([]float32, m*ldc)
	for i := range a {
		a[i] = float32(i*389%1023-511) / 512
	}
	for i := range b {
		b[i] = float32(i*173%1023-511) / 512
	}
	for i := range c {
		c[i] = float32(math.NaN())
	}
	product(m, n, k, a, lda, b, ldb, c, ldc)
	for i := range m {
		for j := range ldc {
			got := c[i*ldc+j]
			if j >= n {
				if got == got {
					return false
				}
				continue
			}
			want := float32(0)
			for l := range k {
				want += a[i*lda+l] * b[j*ldb+l]
			}
			if got != want {
				return false
			}
		}
	}
	return true
}

// verdict reports whether the BLAS is faster: what was found at an earlier start,
// else what is measured now.
func (c *blasChooser) verdict(b *Backend, product sgemm, kept Verdicts) bool {
	if kept == nil {
		return c.gains(b, product)
	}
	key := fmt.Sprintf("accelerate %s %d", b.k.Name, b.pool.workers)
	faster, known := kept.Read(key)
	if !known {
		faster = c.gains(b, product)
		kept.Write(key, faster)
	}
	return faster
}

// gains measures a projection of the fewest rows that would go to the BLAS,
// where it gains least, with weights in bf16 that must be widened for it.
func (c *blasChooser) gains(b *Backend, product sgemm) bool {
	const rows, out, in = accelerateRows + 1, 1536, 1024
	t := backend.Tensor{Name: "measured", DType: backend.BF16, Shape: []int{out, in}}.Allocated()
	w := &matrix{Weight: kernels.NewWeight(t), proj: b.k.Exact}
	if !w.proj.Takes(t.DType, in) {
		return false
	}
	for i := range t.Data {
		t.Data[i] = [2]byte{0x80, 0x3f}[i%2] // 1 in bf16
	}
	x, y := make([]float32, rows*in), &buffer{width: out, data: make([]float32, rows*out)}
	for i := range x {
		x[i] = 1
	}
	f := &forward{b: b, rows: rows}
	project := func(with sgemm) func() {
		return func() {
			b.blas.product = with
			f.dispatch(x, rows, []target{{w: w, dst: y}})
		}
	}
	// Its first large product may start threads.
	product(rows, 64, in, x, in, x, in, y.data, out)
	b.blas.rows = accelerateRows
	defer func() { b.blas, b.packed = blas{}, kernels.Packed{} }()
	return c.faster(project(nil), project(product))
}

const (
	// measureTime bounds a measurement at start, as far as one trial allows.
	measureTime   = 40 * time.Millisecond
	measureTrials = 4
	// measureGain is how many times faster the BLAS must be to be worth what it
	// gives up, and for two starts to choose alike.
	measureGain = 1.25
)

// measuredFaster reports whether theirs takes less than ours by measureGain. They
// alternate, and the least time of each counts.
func measuredFaster(now func() time.Time, ours, theirs func()) bool {
	var best [2]time.Duration
	start := now()
	for trial := range measureTrials {
		begin := now()
		for i, run := range []func(){ours, theirs} {
			t := now()
			run()
			if took := now().Sub(t); trial == 0 || took < best[i] {
				best[i] = took
			}
		}
		// Another trial may take as long as this one.
		if end := now(); end.Sub(start)+end.Sub(begin) > measureTime {
			break
		}
	}
	return float64(best[1])*measureGain < float64(best[0])
}
