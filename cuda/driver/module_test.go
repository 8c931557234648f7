package driver

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"windrow/cuda/emulator"
	"windrow/cuda/kernels"
)

func TestBadPTX(t *testing.T) {
	c := testContext(t)
	for _, text := range []string{"", "this is no PTX", ".version 7.4\n.target sm_80\n.visible .entry no_such_kernel()\n{ ret; }\n"} {
		m, err := c.Load([]byte(text))
		if err == nil {
			_, err = m.Function("no_such_kernel")
			m.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), "cuda: ") {
			t.Errorf("PTX %.20q: error %v", text, err)
		}
	}
	_, err := c.Load([]byte("this is no PTX"))
	if err == nil || !strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "cuLibraryLoadData") {
		t.Errorf("want the translator's log behind the error's first line, got: %v", err)
	}
	_, f := function(t, c, "intrinsic_mma")
	if f.parameters != 3 {
		t.Errorf("intrinsic_mma has %d parameters, want 3", f.parameters)
	}
}

func TestEntries(t *testing.T) {
	got := entries([]byte(`
.version 8.0
.target sm_90a
.extern .shared .align 128 .b8 dynamic_shared[];
	// .globl	one
.visible .entry one(
	.param .u64 .ptr .align 1 one_param_0,
	.param .f32 one_param_1
)
.maxntid 128
{
	griddepcontrol.wait;
	ret;
}
.visible .entry none()
{
	ret;
}
.entry spaced (.param .u64 a, .param .u32 b, .param .align 8 .b8 c[64]) { ret; }
.entry bare { griddepcontrol.wait; ret; }
`))
	want := map[string]entry{"one": {2, true}, "none": {0, false}, "spaced": {3, false}, "bare": {0, true}}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := entries([]byte(".entry ")); len(got) != 0 {
		t.Errorf("an entry without a name: %v", got)
	}
}

// TestTranslate: PTX is translated without a context, for one that comes later, or for none.
func TestTranslate(t *testing.T) {
	d, err := Open(Options{Library: emulator.Library(t, false)})
	if err != nil {
		t.Fatal(err)
	}
	image, err := kernels.PTX("intrinsics", "intrinsic_mma", 8, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes [2]*Code
	for i := range codes {
		if codes[i], err = d.Translate(image); err != nil {
			t.Fatal(err)
		}
	}
	if err := codes[1].Close(); err != nil {
		t.Error(err)
	}
	c, err := d.NewContext(0)
	if err != nil {
		t.Fatal(err)
	}
	c.Enter()
	defer c.Leave()
	m, err := c.Adopt(codes[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Function("intrinsic_mma"); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil { // with the module
		t.Error(err)
	}
	if _, err := c.Adopt(codes[0]); !errors.Is(err, errClosed) {
		t.Errorf("a closed context adopts: %v", err)
	}
	if _, err := d.Translate([]byte("no PTX")); err == nil || !strings.Contains(err.Error(), "ptxas fatal") {
		t.Errorf("error %v", err)
	}
}
