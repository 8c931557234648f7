package metal

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"windrow/backend"
	"windrow/backend/doctor"
	"windrow/metal/driver"
	"windrow/metal/emulator"
	"windrow/metal/fakeobjc"
	"windrow/metal/kernels"
)

// withSelfTests runs a test with self-tests of its own.
func withSelfTests(t *testing.T, tests ...selfTest) {
	t.Helper()
	kept := selfTests
	selfTests = tests
	t.Cleanup(func() { selfTests = kept })
}

// examineEmulated examines an emulated GPU.
func examineEmulated(t *testing.T, o doctor.Options) []doctor.Check {
	t.Helper()
	rt, _ := emulated(t)
	checks, err := examine(func() (*gpu, error) { return newGPU(rt) }, o)
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

// gpuOn starts a gpu over a fake runtime.
func gpuOn(f *fakeobjc.Fake) (*gpu, error) { return newGPU(driver.New(f)) }

func names(checks []doctor.Check) string {
	var list []string
	for _, c := range checks {
		list = append(list, c.Status+" "+c.Name)
	}
	return strings.Join(list, ",")
}

func TestDoctorFailures(t *testing.T) {
	withSelfTests(t,
		selfTest{"t panics", func(*device) error { panic("a panic") }},
		selfTest{"t fails", func(*device) error { return errors.New("it fails") }},
		selfTest{"t leaves memory", func(d *device) error {
			_, err := d.alloc(100, elemF32)
			return err
		}},
		selfTest{"t begins anew", func(d *device) error {
			if d.allocated != 0 {
				return fmt.Errorf("%d bytes of a failed test", d.allocated)
			}
			return nil
		}},
		selfTest{"not asked for", func(*device) error { return errors.New("run") }},
	)
	// What a failed test leaves behind is its fault: the fake is not asked.
	fake := fakeobjc.New(fakeobjc.Options{})
	var reported []doctor.Check
	checks, err := examine(func() (*gpu, error) { return gpuOn(fake) }, doctor.Options{
		Only: regexp.MustCompile("^t "), Report: func(c doctor.Check) { reported = append(reported, c) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(reported) != len(checks) {
		t.Errorf("%d checks reported of %d", len(reported), len(checks))
	}
	if got, want := names(checks), " system, device, limits,FAIL t panics,FAIL t fails,FAIL t leaves memory,ok t begins anew"; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	for i, words := range map[int]string{0: "macOS", 1: "family Apple7", 2: "working set", 3: "a panic", 4: "it fails", 5: "100 bytes"} {
		if !strings.Contains(checks[i].Detail, words) {
			t.Errorf("%s: %q does not say %q", checks[i].Name, checks[i].Detail, words)
		}
	}
}

// A check that does not end is failed, and the doctor comes back.
func TestDoctorPatience(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	withSelfTests(t, selfTest{"endless", func(*device) error { <-end; return nil }}, selfTest{"behind", func(*device) error { return nil }})
	fake := fakeobjc.New(fakeobjc.Options{})
	checks, err := examine(func() (*gpu, error) { return gpuOn(fake) },
		doctor.Options{Only: regexp.MustCompile("endless|behind"), Patience: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	last := checks[len(checks)-1]
	if last.Name != "endless" || last.Status != doctor.StatusFailed || !strings.Contains(last.Detail, "no end after 2s") {
		t.Errorf("last check: %+v", last)
	}
}

// Every kernel is compiled and made ready; a source that the compiler refuses
// is one failed check that has all that the compiler said.
func TestDoctorCompiles(t *testing.T) {
	checks := examineEmulated(t, doctor.Options{Only: regexp.MustCompile("^compile (rows|gate)$")})
	if got, want := names(checks), " system, device, limits,ok compile gate,ok compile rows"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	if d := checks[3].Detail; !strings.HasPrefix(d, "2 kernels in ") || !strings.Contains(d, "the fewest threads: 1024 of gate_rows_bf16") {
		t.Errorf("gate: %s", d)
	}
	fake := fakeobjc.New(fakeobjc.Options{Compile: func(string, bool) (fakeobjc.Library, error) {
		return nil, errors.New("program_source:7:3: error: no such thing\nnote: elsewhere\n")
	}})
	checks, err := examine(func() (*gpu, error) { return gpuOn(fake) }, doctor.Options{Only: regexp.MustCompile("^compile gate$")})
	if err != nil {
		t.Fatal(err)
	}
	if last := checks[len(checks)-1]; last.Status != doctor.StatusFailed || !strings.Contains(last.Detail, "no such thing") || !strings.Contains(last.Detail, "note: elsewhere") {
		t.Errorf("%+v", last)
	}
}

// The measurements come to an end with figures, at small sizes here.
func TestDoctorRates(t *testing.T) {
	d := testDevice(t, emulator.Plain, 0)
	d.info.WorkingSet = 1 << 20
	for name, measure := range map[string]func(*device, *doctor.Check) error{
		"bandwidth": (*device).measureBandwidth,
		"affine4":   windowShape{backend.Affine4, 16, 64, 128}.measure,
		"q4_k":      windowShape{backend.Q4_K, 1, 32, 256}.measure,
		"prefill":   windowShape{backend.BF16, 40, 32, 64}.measure,
	} {
		var c doctor.Check
		if err := measure(d, &c); err != nil || c.Rate <= 0 || c.Detail == "" {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	var c doctor.Check
	if err := d.measureLatency(&c); err != nil || !strings.Contains(c.Detail, "µs a command buffer") {
		t.Errorf("latency: %+v, %v", c, err)
	}
}

// CompileSources finds what the first forward would: nothing wrong, or the compiler's
// refusal.
func TestCompileSources(t *testing.T) {
	b := emulatedWith(t, fakeobjc.Options{})
	if err := b.CompileSources([]backend.DType{backend.BF16, backend.Affine4}, true, false); err != nil {
		t.Error(err)
	}
	fake := fakeobjc.New(fakeobjc.Options{Compile: func(source string, _ bool) (fakeobjc.Library, error) {
		if strings.Contains(source, "kernel void embed") {
			return nil, errors.New("program_source:7:3: error: no such thing")
		}
		return nil, errors.New("asked for more than one")
	}})
	g, err := gpuOn(fake)
	if err != nil {
		t.Fatal(err)
	}
	refused := newBackend(g, Options{})
	defer refused.Close()
	if err := refused.CompileSources(nil, false, false); err == nil || !strings.Contains(err.Error(), "embed.metal does not compile: program_source:7:3: error: no such thing") {
		t.Errorf("error %v", err)
	}
}

// A library tells Metal's way which kernels it has: all that the emulator finds.
func TestKernelNames(t *testing.T) {
	emulator.Available(t)
	d := testDevice(t, emulator.Plain, 0)
	for _, file := range kernels.Names() {
		source, err := kernels.Source(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := emulator.Compile(source, emulator.Plain)
		if err != nil {
			t.Fatal(err)
		}
		l, err := d.library(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Kernels(); len(got) == 0 || !slices.Equal(got, want.Kernels()) {
			t.Errorf("%s: kernels %v, want %v", file, got, want.Kernels())
		}
	}
}
