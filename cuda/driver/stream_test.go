package driver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

// ticketBench is a launch of intrinsic_ticket: each run writes the sum of n
// ones to out[0] and adds 1 to out[1].
type ticketBench struct {
	c      *Context
	s      *Stream
	m      *Module
	f      *Function
	host   *Pinned
	memory Ptr
	config LaunchConfig
	args   []uint64
}

const (
	ticketCount  = 300
	ticketBlocks = 3
	ticketIn     = 0
	ticketPart   = 4 * ticketCount
	ticketTicket = ticketPart + 4*ticketBlocks
	ticketOut    = ticketTicket + 4
	ticketBytes  = ticketOut + 8
)

func newTicketBench(t *testing.T, c *Context) *ticketBench {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b := &ticketBench{c: c}
	b.m, b.f = function(t, c, "intrinsic_ticket")
	var err error
	b.s, err = c.NewStream()
	must(err)
	b.host, err = c.HostAlloc(ticketBytes)
	must(err)
	b.memory, err = c.Alloc(ticketBytes)
	must(err)
	t.Cleanup(func() {
		if err := errors.Join(b.s.Close(), b.host.Close(), c.Free(b.memory)); err != nil {
			t.Error(err)
		}
	})
	clear(b.host.Bytes())
	copy(b.host.Bytes(), bytes.Repeat(floats(1), ticketCount))
	must(b.s.CopyIn(b.memory, b.host, 0, ticketBytes))
	b.config = LaunchConfig{Grid: [3]uint32{ticketBlocks, 1, 1}, Block: 128, Shared: 16}
	b.args = []uint64{
		uint64(b.memory + ticketIn), uint64(b.memory + ticketPart), uint64(b.memory + ticketTicket),
		uint64(b.memory + ticketOut), ticketCount,
	}
	return b
}

// out downloads the sum and the number of launches.
func (b *ticketBench) out(t *testing.T) (sum, launches float32) {
	t.Helper()
	data := make([]byte, 8)
	if err := b.c.Download(data, b.memory+ticketOut); err != nil {
		t.Fatal(err)
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(data)), math.Float32frombits(binary.LittleEndian.Uint32(data[4:]))
}

func TestCopies(t *testing.T) {
	c := testContext(t)
	const n = 1 << 12
	a, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	if c.Allocated() != 2*n {
		t.Errorf("%d bytes allocated, want %d", c.Allocated(), 2*n)
	}
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	host, err := c.HostAlloc(n)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*i + i>>8)
	}
	err = errors.Join(
		c.Upload(a, data),
		s.Copy(b, a, n), s.Zero(b+16, 5), s.CopyOut(host, 0, b, n), s.Synchronize(),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(data)
	clear(want[16:21])
	if !bytes.Equal(host.Bytes(), want) {
		t.Error("copied and cleared bytes differ")
	}
	copy(host.Bytes()[100:], "windrow")
	if err := s.CopyIn(a+7, host, 100, 7); err != nil {
		t.Fatal(err)
	}
	copy(data[7:], "windrow")
	got := make([]byte, n)
	if err := c.Download(got, a); err != nil || !bytes.Equal(got, data) {
		t.Errorf("bytes differ after a copy from pinned memory: %v", err)
	}
	if err := errors.Join(c.Upload(a, nil), c.Download(nil, a), s.Copy(a, b, 0), s.Zero(a, 0), s.CopyIn(a, host, n, 0)); err != nil {
		t.Errorf("copies of nothing: %v", err)
	}
	for what, err := range map[string]error{
		"upload past the end":           c.Upload(a+1, data),
		"download past the end":         c.Download(data, a+1),
		"copy past the end":             s.Copy(a, b+1, n),
		"copy of a negative length":     s.Copy(a, b, -1),
		"clearing past the end":         s.Zero(a+8, n),
		"clearing of a negative length": s.Zero(a, -1),
		"from past pinned memory":       s.CopyIn(a, host, 1, n),
		"from before pinned memory":     s.CopyIn(a, host, -1, 1),
		"to past pinned memory":         s.CopyOut(host, n, a, 1),
		"free within an allocation":     c.Free(a + 256),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		} else if !strings.HasPrefix(err.Error(), "cuda: ") {
			t.Errorf("%s: error %q", what, err)
		}
	}
	for _, bytes := range []int{0, -1} {
		if _, err := c.Alloc(bytes); err == nil {
			t.Errorf("Alloc(%d): no error", bytes)
		}
		if _, err := c.HostAlloc(bytes); err == nil {
			t.Errorf("HostAlloc(%d): no error", bytes)
		}
	}
	if err := errors.Join(c.Free(a), c.Free(b), c.Free(0), host.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if c.Allocated() != 0 {
		t.Errorf("%d bytes allocated after all is freed", c.Allocated())
	}
	if err := c.Free(a); err == nil {
		t.Error("freed twice without an error")
	}
	for what, err := range map[string]error{
		"CopyIn":       s.CopyIn(a, host, 0, 1),
		"Zero":         s.Zero(a, 1),
		"Copy":         s.Copy(a, b, 1),
		"Synchronize":  s.Synchronize(),
		"BeginCapture": s.BeginCapture(),
	} {
		if !errors.Is(err, errClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	if err := errors.Join(host.Close(), s.Close()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestLaunch(t *testing.T) {
	c := testContext(t)
	b := newTicketBench(t, c)
	for range 3 {
		if err := b.s.Launch(b.f, b.config, b.args); err != nil {
			t.Fatal(err)
		}
	}
	if sum, n := b.out(t); sum != ticketCount || n != 3 {
		t.Errorf("sum %v after %v launches, want %d after 3", sum, n, ticketCount)
	}
	tooMuch := b.config
	tooMuch.Shared = defaultShared + 1
	noBlock := b.config
	noBlock.Block = 0
	for what, err := range map[string]error{
		"too few arguments":      b.s.Launch(b.f, b.config, b.args[1:]),
		"too many arguments":     b.s.Launch(b.f, b.config, append(b.args, 0)),
		"too much shared memory": b.s.Launch(b.f, tooMuch, b.args),
		"no threads":             b.s.Launch(b.f, noBlock, b.args),
		"more than a block has":  b.f.AllowShared(c.Info().SharedPerBlock + 1),
	} {
		if err == nil || !strings.Contains(err.Error(), "intrinsic_ticket") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	if err := b.f.AllowShared(64 << 10); err != nil {
		t.Fatal(err)
	}
	// Another who asks for the kernel, and for less, takes nothing away.
	again, err := b.m.Function("intrinsic_ticket")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.AllowShared(50 << 10); err != nil {
		t.Fatal(err)
	}
	tooMuch.Shared = 64 << 10
	if err := b.s.Launch(b.f, tooMuch, b.args); err != nil {
		t.Errorf("64 KiB of shared memory: %v", err)
	}
}

func TestGraph(t *testing.T) {
	b := newTicketBench(t, testContext(t))
	if err := b.s.BeginCapture(); err != nil {
		t.Fatal(err)
	}
	const launches = 5
	for range launches {
		if err := b.s.Launch(b.f, b.config, b.args); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.s.CopyOut(b.host, 0, b.memory+ticketOut, 8), b.s.Zero(b.memory+ticketOut, 4)); err != nil {
		t.Fatal(err)
	}
	g, err := b.s.EndCapture()
	if err != nil {
		t.Fatal(err)
	}
	if g.Nodes() != launches+2 {
		t.Errorf("%d nodes, want %d", g.Nodes(), launches+2)
	}
	if sum, n := b.out(t); sum != 0 || n != 0 {
		t.Errorf("capturing ran the work: sum %v, %v launches", sum, n)
	}
	for replay := range 4 {
		if err := errors.Join(g.Launch(b.s), b.s.Synchronize()); err != nil {
			t.Fatal(err)
		}
		if want := floats(ticketCount, float32(launches*(replay+1))); !bytes.Equal(b.host.Bytes()[:8], want) {
			t.Errorf("replay %d copied %v, want %v", replay, b.host.Bytes()[:8], want)
		}
		if sum, _ := b.out(t); sum != 0 {
			t.Errorf("replay %d: the graph's last node did not clear the sum: %v", replay, sum)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Launch(b.s); !errors.Is(err, errClosed) {
		t.Errorf("launch after Close: %v", err)
	}
}

// What a step calls allocates nothing.
func TestNoAllocation(t *testing.T) {
	b := newTicketBench(t, testContext(t))
	if err := b.s.BeginCapture(); err != nil {
		t.Fatal(err)
	}
	if err := b.s.Zero(b.memory+ticketOut, 4); err != nil {
		t.Fatal(err)
	}
	g, err := b.s.EndCapture()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	event, err := b.c.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	defer event.Close()
	config := b.config
	config.Overlap = true
	for what, call := range map[string]func() error{
		"Enter":             func() error { b.c.Enter(); b.c.Leave(); return nil },
		"Launch":            func() error { return b.s.Launch(b.f, config, b.args) },
		"CopyIn":            func() error { return b.s.CopyIn(b.memory, b.host, 0, 16) },
		"CopyOut":           func() error { return b.s.CopyOut(b.host, 0, b.memory, 16) },
		"Copy":              func() error { return b.s.Copy(b.memory, b.memory+64, 16) },
		"Zero":              func() error { return b.s.Zero(b.memory+ticketOut, 4) },
		"Synchronize":       b.s.Synchronize,
		"Graph.Launch":      func() error { return g.Launch(b.s) },
		"Event.Record":      func() error { return event.Record(b.s) },
		"Event.Synchronize": event.Synchronize,
	} {
		var failed error
		// Below one: the pool that purego keeps its blocks in may be emptied once.
		if n := testing.AllocsPerRun(200, func() { failed = errors.Join(failed, call()) }); n >= 1 {
			t.Errorf("%s: %v allocations a call", what, n)
		}
		if failed != nil {
			t.Errorf("%s: %v", what, failed)
		}
	}
}

func TestEvents(t *testing.T) {
	b := newTicketBench(t, testContext(t))
	first, err := b.c.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.c.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(first.Record(b.s), b.s.Launch(b.f, b.config, b.args), second.Record(b.s), second.Synchronize())
	if err != nil {
		t.Fatal(err)
	}
	if d, err := Elapsed(first, second); err != nil || d <= 0 {
		t.Errorf("a launch took %v, %v", d, err)
	}
	if err := errors.Join(first.Close(), second.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Elapsed(first, second)
	if !errors.Is(err, errClosed) || !errors.Is(first.Record(b.s), errClosed) || !errors.Is(first.Synchronize(), errClosed) {
		t.Errorf("an event after Close: %v", err)
	}
}

// Many goroutines use a context, each with a stream of its own.
func TestGoroutines(t *testing.T) {
	c := testContext(t)
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() { errs[i] = useContext(c, byte(i)) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func useContext(c *Context, seed byte) error {
	c.Enter()
	defer c.Leave()
	s, err := c.NewStream()
	if err != nil {
		return err
	}
	want := bytes.Repeat([]byte{seed, 3, 5}, 1000)
	got := make([]byte, len(want))
	for range 20 {
		p, err := c.Alloc(len(want))
		if err != nil {
			return err
		}
		c.Enter() // nested
		err = errors.Join(c.Upload(p, want), s.Zero(p, 1), s.Synchronize(), c.Download(got, p), c.Free(p))
		c.Leave()
		if err != nil {
			return err
		}
		if got[0] != 0 || !bytes.Equal(got[1:], want[1:]) {
			return errors.New("bytes of another goroutine")
		}
	}
	return s.Close()
}

// A closed context frees what is left and takes no more calls.
func TestCloseFreesTheRest(t *testing.T) {
	c := testContext(t)
	if _, err := c.Alloc(1000); err != nil {
		t.Fatal(err)
	}
	if _, err := c.HostAlloc(1000); err != nil {
		t.Fatal(err)
	}
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if left := len(c.remaining()); left != 3 || c.Allocated() != 1000 {
		t.Errorf("%d objects, %d bytes; want 3 and 1000", left, c.Allocated())
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if left := len(c.remaining()); left != 0 || c.Allocated() != 0 {
		t.Errorf("%d objects, %d bytes after Close", left, c.Allocated())
	}
	_, errAlloc := c.Alloc(1)
	_, errHost := c.HostAlloc(1)
	_, errLoad := c.Load(nil)
	_, errStream := c.NewStream()
	_, errEvent := c.NewEvent()
	_, errUploader := c.NewUploader()
	_, _, errInfo := c.MemInfo()
	for what, err := range map[string]error{
		"Alloc": errAlloc, "HostAlloc": errHost, "Load": errLoad, "NewStream": errStream, "NewEvent": errEvent,
		"NewUploader": errUploader, "MemInfo": errInfo, "Upload": c.Upload(1, []byte{1}), "Synchronize": c.Synchronize(),
		"a stream's": s.Synchronize(),
	} {
		if !errors.Is(err, errClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

// On 9.0 launches of kernels that wait go through cuLaunchKernelEx.
func TestOverlap(t *testing.T) {
	if !emulated(t, "WINDROW_EMULATED_CC=9.0") {
		return
	}
	c := testContext(t)
	b := newTicketBench(t, c)
	if !c.overlap || !b.f.waits {
		t.Fatalf("launches do not overlap: device %v, kernel %v", c.overlap, b.f.waits)
	}
	b.config.Overlap = true
	for range 3 {
		if err := b.s.Launch(b.f, b.config, b.args); err != nil {
			t.Fatal(err)
		}
	}
	if sum, n := b.out(t); sum != ticketCount || n != 3 {
		t.Errorf("sum %v after %v launches, want %d after 3", sum, n, ticketCount)
	}
}

// The layouts that C has for the structures passed to the driver.
func TestLayouts(t *testing.T) {
	var c extendedConfig
	var a launchAttribute
	for what, got := range map[string][2]uintptr{
		"CUlaunchConfig":              {unsafe.Sizeof(c), 56},
		"CUlaunchConfig.hStream":      {unsafe.Offsetof(c.stream), 32},
		"CUlaunchConfig.attrs":        {unsafe.Offsetof(c.attributes), 40},
		"CUlaunchConfig.numAttrs":     {unsafe.Offsetof(c.count), 48},
		"CUlaunchConfig.sharedMem":    {unsafe.Offsetof(c.shared), 24},
		"CUlaunchAttribute":           {unsafe.Sizeof(a), 72},
		"CUlaunchAttribute.value":     {unsafe.Offsetof(a.value), 8},
		"a launch's values, one slot": {unsafe.Sizeof(launchBlock{}.values), 8 * maxParameters},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", what, got[0], got[1])
		}
	}
}
