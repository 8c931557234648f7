package driver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
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

// TestPreferShared: the preference is that kernel's.
func TestPreferShared(t *testing.T) {
	c := testContext(t)
	_, ticket := function(t, c, "intrinsic_ticket")
	_, mma := function(t, c, "intrinsic_mma")
	if err := ticket.PreferShared(); err != nil {
		t.Fatal(err)
	}
	for f, want := range map[*Function]int{ticket: 100, mma: -1} {
		if got, err := f.SharedCarveout(); err != nil || got != want {
			t.Errorf("%s has %d %%, want %d; error %v", f.name, got, want, err)
		}
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
