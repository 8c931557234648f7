package launch

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"windrow/cuda/driver"
)

// cublas is NVIDIA's matrix library, opened at run time where the machine has
// it. Only prefill uses it, and nothing needs it.
type cublas struct {
	library   *driver.Library
	version   int // 120304 is 12.3.4
	calls     blasCalls
	handle    uintptr
	operation uintptr // description of x·wᵀ: f32 sums, the first operand transposed
	search    uintptr // what the heuristic may use
	ctx       *driver.Context
	workspace driver.Ptr
	room      int // bytes of the workspace
	plans     map[blasShape]*blasPlan
	args      [16]uintptr // of cublasLtMatmul
	scale     [2]float32  // 0 and 1
}

type blasCalls struct {
	version, create, destroy            uintptr
	operationCreate, operationSet       uintptr
	layoutCreate, layoutDestroy         uintptr
	preferenceCreate, preferenceSet     uintptr
	operationDestroy, preferenceDestroy uintptr
	heuristic, matmul                   uintptr
}

// blasShape is what a plan is made for.
type blasShape struct {
	rows, out, in int
	f32           bool // outputs are f32, else bf16
	accumulate    bool
	alignment     uint32 // of the operands' addresses, at most 256
}

// blasPlan is the library's choice for a shape.
type blasPlan struct {
	w, x, d uintptr // layouts
	choice  blasChoice
}

// blasChoice is cublasLtMatmulHeuristicResult_t.
type blasChoice struct {
	algorithm [8]uint64
	_         uint64 // workspace that it uses
	status    int32
	_         float32 // waves
	_         [4]int32
}

// Numbers of cudaDataType_t, cublasComputeType_t and the attributes.
const (
	blasF32, blasBF16     = 0, 14
	blasSumsF32           = 68
	operationTransposeA   = 3
	preferenceWorkspace   = 1
	preferenceAlignmentA  = 5 // B, C and D follow
	blasWorkspace         = 32 << 20
	blasWorkspaceHopper   = 64 << 20
	blasAlignment         = 256
	blasStatusUnsupported = 15
)

// newBLAS opens cuBLASLt on the device's context. The error is ErrNoBLAS
// where there is none, and else says what the library refused.
func newBLAS(ctx *driver.Context) (found *cublas, err error) {
	err = blasLibraries(ctx.Info().DriverVersion, func(l *driver.Library) error {
		b := &cublas{library: l, ctx: ctx, plans: map[blasShape]*blasPlan{}, scale: [2]float32{0, 1}}
		err := b.bind()
		if err == nil {
			err = b.open()
		}
		if err == nil {
			err = b.try()
		}
		if err != nil {
			return fmt.Errorf("cuda: %s: %w", l.Path, errors.Join(err, b.close()))
		}
		found = b
		return nil
	})
	return found, err
}

// try asks for products of both kinds: a library older than the device opens,
// and has none.
func (b *cublas) try() error {
	for _, f32 := range []bool{false, true} {
		p, err := b.plan(blasShape{128, 128, 128, f32, f32, blasAlignment})
		if err == nil {
			err = b.forget(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// findBLAS opens cuBLASLt where it is to be found; the device does without
// where it is not, or where it refuses.
func (d *Device) findBLAS() {
	if b, err := newBLAS(d.Context); err == nil {
		d.blas = b
	}
}

func (b *cublas) bind() error {
	c := &b.calls
	for _, f := range []struct {
		name    string
		address *uintptr
	}{
		{"cublasLtGetVersion", &c.version},
		{"cublasLtCreate", &c.create}, {"cublasLtDestroy", &c.destroy},
		{"cublasLtMatmulDescCreate", &c.operationCreate}, {"cublasLtMatmulDescSetAttribute", &c.operationSet},
		{"cublasLtMatmulDescDestroy", &c.operationDestroy},
		{"cublasLtMatrixLayoutCreate", &c.layoutCreate}, {"cublasLtMatrixLayoutDestroy", &c.layoutDestroy},
		{"cublasLtMatmulPreferenceCreate", &c.preferenceCreate}, {"cublasLtMatmulPreferenceSetAttribute", &c.preferenceSet},
		{"cublasLtMatmulPreferenceDestroy", &c.preferenceDestroy},
		{"cublasLtMatmulAlgoGetHeuristic", &c.heuristic}, {"cublasLtMatmul", &c.matmul},
	} {
		address, err := b.library.Symbol(f.name)
		if err != nil {
			return err
		}
		*f.address = address
	}
	b.version = int(driver.Call(c.version))
	return nil
}

func (b *cublas) open() error {
	c := &b.calls
	if err := blasError("cublasLtCreate", driver.Call(c.create, uintptr(unsafe.Pointer(&b.handle)))); err != nil {
		return err
	}
	if err := blasError("cublasLtMatmulDescCreate", driver.Call(c.operationCreate, uintptr(unsafe.Pointer(&b.operation)), blasSumsF32, blasF32)); err != nil {
		return err
	}
	transpose := int32(1)
	if err := blasError("cublasLtMatmulDescSetAttribute", driver.Call(c.operationSet, b.operation, operationTransposeA, uintptr(unsafe.Pointer(&transpose)), 4)); err != nil {
		return err
	}
	b.room = blasWorkspace
	if b.ctx.Info().Major >= 9 {
		b.room = blasWorkspaceHopper
	}
	var err error
	if b.workspace, err = b.ctx.Alloc(b.room); err != nil {
		return err
	}
	if err := blasError("cublasLtMatmulPreferenceCreate", driver.Call(c.preferenceCreate, uintptr(unsafe.Pointer(&b.search)))); err != nil {
		return err
	}
	room := uint64(b.room)
	return blasError("cublasLtMatmulPreferenceSetAttribute", driver.Call(c.preferenceSet, b.search, preferenceWorkspace, uintptr(unsafe.Pointer(&room)), 8))
}

// matmul enqueues d[rows, out] (+)= x[rows, in] · w[out, in]ᵀ with f32 sums; x
// and w are bf16, d is f32 or bf16. It may be captured.
func (b *cublas) matmul(s *driver.Stream, d driver.Ptr, f32 bool, w, x driver.Ptr, rows, out, in int, accumulate bool) error {
	shape := blasShape{rows, out, in, f32, accumulate, alignment(d | w | x)}
	p, ok := b.plans[shape]
	if !ok {
		var err error
		if p, err = b.plan(shape); err != nil {
			return fmt.Errorf("cuda: cuBLASLt: %d rows by [%d, %d]: %w", rows, out, in, err)
		}
		b.plans[shape] = p
	}
	beta := &b.scale[0]
	if accumulate {
		beta = &b.scale[1]
	}
	b.args = [16]uintptr{
		b.handle, b.operation,
		uintptr(unsafe.Pointer(&b.scale[1])), uintptr(w), p.w, uintptr(x), p.x,
		uintptr(unsafe.Pointer(beta)), uintptr(d), p.d, uintptr(d), p.d,
		uintptr(unsafe.Pointer(&p.choice.algorithm)), uintptr(b.workspace), uintptr(b.room), s.Handle(),
	}
	if r := driver.CallBlock(b.calls.matmul, b.args[:]); r != 0 {
		return blasError(fmt.Sprintf("cublasLtMatmul of %d rows by [%d, %d]", rows, out, in), r)
	}
	return nil
}

// alignment is the largest power of two, to 256, that divides the addresses
// whose bits are joined in p.
func alignment(p driver.Ptr) uint32 {
	return uint32(min(1<<bits.TrailingZeros64(uint64(p)|blasAlignment), blasAlignment))
}

// plan makes the layouts of a shape and asks the library for its first choice.
// The library counts columns first: what it multiplies is dᵀ = w·xᵀ, with w
// stored transposed.
func (b *cublas) plan(s blasShape) (*blasPlan, error) {
	p := &blasPlan{}
	c := &b.calls
	dtype := uintptr(blasBF16)
	if s.f32 {
		dtype = blasF32
	}
	for _, l := range []struct {
		layout        *uintptr
		dtype         uintptr
		rows, columns int
	}{
		{&p.w, blasBF16, s.in, s.out}, {&p.x, blasBF16, s.in, s.rows}, {&p.d, dtype, s.out, s.rows},
	} {
		r := driver.Call(c.layoutCreate, uintptr(unsafe.Pointer(l.layout)), l.dtype, uintptr(l.rows), uintptr(l.columns), uintptr(l.rows))
		if r != 0 {
			return nil, errors.Join(blasError("cublasLtMatrixLayoutCreate", r), b.forget(p))
		}
	}
	for operand := range uintptr(4) {
		r := driver.Call(c.preferenceSet, b.search, preferenceAlignmentA+operand, uintptr(unsafe.Pointer(&s.alignment)), 4)
		if r != 0 {
			return nil, errors.Join(blasError("cublasLtMatmulPreferenceSetAttribute", r), b.forget(p))
		}
	}
	var found int32
	r := driver.Call(c.heuristic, b.handle, b.operation, p.w, p.x, p.d, p.d, b.search, 1,
		uintptr(unsafe.Pointer(&p.choice)), uintptr(unsafe.Pointer(&found)))
	if r == 0 && (found < 1 || p.choice.status != 0) {
		r = blasStatusUnsupported
	}
	if r != 0 {
		return nil, errors.Join(blasError("cublasLtMatmulAlgoGetHeuristic", r), b.forget(p))
	}
	return p, nil
}

// forget frees a plan's layouts.
func (b *cublas) forget(p *blasPlan) error {
	var err error
	for _, layout := range []uintptr{p.w, p.x, p.d} {
		if layout != 0 {
			err = errors.Join(err, blasError("cublasLtMatrixLayoutDestroy", driver.Call(b.calls.layoutDestroy, layout)))
		}
	}
	return err
}

// close frees everything; nil is closed.
func (b *cublas) close() error {
	if b == nil {
		return nil
	}
	var err error
	for _, p := range b.plans {
		err = errors.Join(err, b.forget(p))
	}
	clear(b.plans)
	for _, x := range []struct {
		name    string
		destroy uintptr
		object  *uintptr
	}{
		{"cublasLtMatmulPreferenceDestroy", b.calls.preferenceDestroy, &b.search},
		{"cublasLtMatmulDescDestroy", b.calls.operationDestroy, &b.operation},
		{"cublasLtDestroy", b.calls.destroy, &b.handle},
	} {
		if *x.object != 0 {
			err = errors.Join(err, blasError(x.name, driver.Call(x.destroy, *x.object)))
			*x.object = 0
		}
	}
	workspace := b.workspace
	b.workspace = 0
	return errors.Join(err, b.ctx.Free(workspace))
}

// blasError makes an error of a cublasStatus_t.
func blasError(call string, status int32) error {
	if status == 0 {
		return nil
	}
	name, ok := map[int32]string{
		1: "not initialised", 3: "allocation failed", 7: "invalid value", 8: "architecture mismatch",
		11: "mapping error", 13: "execution failed", 14: "internal error", blasStatusUnsupported: "not supported",
	}[status]
	if !ok {
		name = "unknown"
	}
	return fmt.Errorf("%s: status %d (%s)", call, status, name)
}

// VersionText is the version as NVIDIA writes it.
func (b *cublas) versionText() string {
	return fmt.Sprintf("%d.%d.%d", b.version/10000, b.version/100%100, b.version%100)
}

// OpenBLAS looks for cuBLASLt, and takes it: its error wraps ErrNoBLAS where there
// is none.
func (d *Device) OpenBLAS() (err error) {
	d.blas, err = newBLAS(d.Context)
	return err
}

// BLASText is the version and the path of the cuBLASLt that OpenBLAS has taken; ""
// where it took none.
func (d *Device) BLASText() string {
	if d.blas == nil {
		return ""
	}
	return d.blas.versionText() + ", " + d.blas.library.Path
}
