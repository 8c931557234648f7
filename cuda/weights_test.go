package cuda

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/cuda/emulator"
)

// TestWeightStages loads weights of several sizes, many at a time, by stages of which each is
// filled several times, and one at a time: they are packed alike.
func TestWeightStages(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var tensors []backend.Tensor
	for i := range 14 {
		out, in := 256*(1+r.IntN(8)), 1024
		random := func(n int) []byte {
			b := make([]byte, n)
			for j := range b {
				b[j] = byte(r.Uint32())
			}
			return b
		}
		q := backend.Tensor{
			Name: fmt.Sprint(i), DType: backend.Affine4, Group: 64, Shape: []int{out, in},
			Data: random(out * in / 2), Scales: random(out * in / 32), Biases: random(out * in / 32),
		}
		for j := 1; j < len(q.Scales); j += 2 {
			q.Scales[j] = 0x3c // small ones in bf16
		}
		tensors = append(tensors, q)
	}
	load := func(apart bool) (packed [][]byte) {
		b, err := New(Options{Library: emulator.Driver(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		b.device.Context.Enter()
		defer b.device.Context.Leave()
		var weights []*matrix
		for _, x := range tensors {
			m, err := b.Matrix(x)
			if err != nil {
				t.Fatal(err)
			}
			weights = append(weights, m.(*matrix))
			if apart {
				err = b.arrive()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := b.arrive(); err != nil {
			t.Fatal(err)
		}
		for i := range b.weights.stages {
			if b.weights.stages[i].at != 0 {
				t.Error("a stage stays")
			}
		}
		for _, m := range weights {
			data := make([]byte, m.weight.Packed.Bytes)
			if err := b.device.Context.Download(data, m.weight.Packed.Data); err != nil {
				t.Fatal(err)
			}
			packed = append(packed, data)
		}
		return packed
	}
	together, apart := load(false), load(true)
	for i := range tensors {
		if !bytes.Equal(together[i], apart[i]) {
			t.Errorf("weight %d differs", i)
		}
	}
}
