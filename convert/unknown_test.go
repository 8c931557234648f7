package convert

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/synthetic"
)

// more is a source with further tensors of zeros in bf16.
type more struct {
	checkpoint.Source
	shapes map[string][]int
	names  []string
}

func (m more) Names() []string { return append(m.Source.Names(), m.names...) }

func (m more) Tensor(name string) (backend.Tensor, bool) {
	if shape, ok := m.shapes[name]; ok {
		t := backend.Tensor{Name: name, DType: backend.BF16, Shape: shape}
		t.Data = make([]byte, 2*t.Elements())
		return t, true
	}
	return m.Source.Tensor(name)
}

// What the architecture does not know, and what is no projection of it, is kept
// whatever the policy says; the report names it.
func TestUnknownTensorsAreKept(t *testing.T) {
	tensors := []struct {
		name   string
		shape  []int
		reason string // "": a vector, which no report names
	}{
		{"model.layers.0.mlp.experts.7.gate_proj.weight", []int{128, 64}, "no tensor of qwen3"},
		{"model.layers.0.mlp.experts.gate_up_proj", []int{4, 128, 64}, "no tensor of qwen3"},
		{"model.layers.0.mlp.gate.weight", []int{4, 64}, "no tensor of qwen3"},
		{"model.layers.2.mlp.up_proj.weight", []int{128, 64}, "no tensor of qwen3"}, // there are two layers
		{"mtp.fc.weight", []int{64, 128}, "no tensor of qwen3"},
		{"model.rotary_emb.inv_freq", []int{16}, ""},
		{"model.layers.1.self_attn.q_norm.weight", []int{1, 64}, "never quantised"},
		{"model.layers.1.mlp.up_proj.weight", []int{2, 64, 64}, "has 3 dimensions"},
	}
	src := more{Source: smallCheckpoint(t, backend.BF16), shapes: map[string][]int{}}
	own := src.Source.Names()
	for _, x := range tensors {
		src.shapes[x.name] = x.shape
		if !slices.Contains(own, x.name) {
			src.names = append(src.names, x.name)
		}
	}
	for _, p := range []Policy{DefaultPolicy(), {Bits: 4, Group: 64}, {Bits: 4, Group: 64, Selective: true, Include: []string{"*"}},
		{Bits: 4, Group: 32, Widths: []Width{{Pattern: "*", Bits: 8}}}} {
		q, report, err := Quantized(context.Background(), src, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range tensors {
			got, ok := q.Tensor(x.name)
			want, _ := src.Tensor(x.name)
			if !ok || got.DType != backend.BF16 || fmt.Sprint(got.Shape) != fmt.Sprint(x.shape) || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("%s: %s is %v %v, want bf16 %v", p.Name(), x.name, got.DType, got.Shape, x.shape)
			}
			reason := ""
			for _, k := range report.Kept {
				if k.Name == x.name {
					reason = k.Reason
				}
			}
			if reason != x.reason {
				t.Errorf("%s: %s is kept because of %q, want %q", p.Name(), x.name, reason, x.reason)
			}
		}
		var table strings.Builder
		if err := report.Table(&table); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(table.String(), "kept in bf16 (no tensor of qwen3): ") {
			t.Errorf("%s: the report does not name what is unknown:\n%s", p.Name(), table.String())
		}
		if down, _ := q.Tensor("model.layers.0.mlp.down_proj.weight"); !down.DType.Affine() {
			t.Errorf("%s: down_proj is %v", p.Name(), down.DType)
		}
	}
}

// A head that is stored beside a tied embedding is left out.
func TestTiedHeadIsLeftOut(t *testing.T) {
	for _, tied := range []bool{false, true} {
		config := *smallCheckpoint(t, backend.BF16).Config()
		config.TieEmbeddings = true
		src := more{synthetic.RandomSource(&config, backend.BF16, 9), map[string][]int{"lm_head.weight": {96, 64}}, []string{"lm_head.weight"}}
		config.TieEmbeddings = tied
		q, _, err := Quantized(context.Background(), src, Policy{Bits: 4, Group: 64})
		if err != nil {
			t.Fatal(err)
		}
		if _, there := q.Tensor("lm_head.weight"); there == tied {
			t.Errorf("tied %v: the head is there: %v", tied, there)
		}
	}
}
