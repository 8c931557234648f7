package cpu

import (
	"testing"

	"windrow/backend"
)

// A step in steady state takes no memory, nor does one after a longer prefill.
func TestStepsReuseBuffers(t *testing.T) {
	b, err := New(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	table, err := b.Matrix(backend.Tensor{Name: "table", DType: backend.F32, Shape: []int{3, 64}}.Allocated())
	if err != nil {
		t.Fatal(err)
	}
	p := new(backend.Program)
	p.Embed(p.Buffer(64), table)
	p.Embed(p.Buffer(64), table)
	compiled, err := b.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	f := compiled.(*forward)
	step := func(rows int) func() {
		v := &backend.Values{Tokens: make([]int32, rows), Positions: make([]int32, rows)}
		return func() {
			if err := f.ready(v); err != nil {
				t.Fatal(err)
			}
		}
	}
	step(500)()
	if n := testing.AllocsPerRun(100, step(4)); n > 0 {
		t.Errorf("%v allocations a step, want none", n)
	}
	if n := testing.AllocsPerRun(100, step(500)); n > 0 {
		t.Errorf("%v allocations a prefill, want none", n)
	}
	f.Close()
	if f.buffers[0].data != nil {
		t.Error("a closed forward holds its buffers")
	}
}
