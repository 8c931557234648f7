package model

import (
	"slices"
	"strings"
	"testing"

	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/rope"
	"windrow/synthetic"
)

// renamed has the tensors of a source under other names.
type renamed struct{ checkpoint.Source }

var otherNames = strings.NewReplacer("transformer.attend.query.", "self_attn.q_proj.", "transformer.attend.", "self_attn.", "transformer.", "mlp.")

func (r renamed) Tensor(name string) (backend.Tensor, bool) {
	if strings.Contains(name, "self_attn.") || strings.Contains(name, "mlp.") {
		return backend.Tensor{}, false
	}
	return r.Source.Tensor(otherNames.Replace(name))
}

// A dense model whose files have other names takes a table and no code: its block
// asks by role. Of several forms of a tensor, the one that is there is taken.
func TestBlockGoesByRole(t *testing.T) {
	config := &checkpoint.Config{Architecture: "qwen2", HiddenSize: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, IntermediateSize: 96, VocabSize: 80,
		RMSNormEps: 1e-6, MaxPositions: 256, Rope: rope.Config{HeadDim: 16, Theta: 10000}}
	src := synthetic.RandomSource(config, backend.F32, 1)
	qwen2, err := architecture.Lookup("qwen2")
	if err != nil {
		t.Fatal(err)
	}
	other := *qwen2
	other.Layers = slices.Clone(other.Layers)
	for i, part := range other.Layers {
		part.Parameters = slices.Clone(part.Parameters)
		for k := range part.Parameters {
			name := &part.Parameters[k].Name
			*name = strings.NewReplacer("self_attn.q_proj.", "transformer.attend.query.", "self_attn.", "transformer.attend.", "mlp.", "transformer.").Replace(*name)
		}
		other.Layers[i] = part
	}
	// Another form of up, which this source has not.
	mlp := other.Layers[1].Parameters
	for k := range mlp {
		if mlp[k].Role == architecture.Up && mlp[k].Class == architecture.ClassProjection {
			mlp[k].Need = architecture.Optional
			form := mlp[k]
			form.Name = "transformer.fused_up.weight"
			other.Layers[1].Parameters = append([]architecture.Parameter{form}, mlp...)
			break
		}
	}
	b, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	attention, mlpBlock := new(attentionBlock), new(denseBlock)
	y := &layerBlock{attention, mlpBlock}
	l := &loader{ctx: t.Context(), b: b, src: renamed{src}, config: config, table: &other, layer: architecture.Model}
	if err := l.block(1, y); err != nil {
		t.Fatal(err)
	}
	for what, m := range map[string]backend.Linear{"q": attention.q, "k": attention.k, "v": attention.v, "o": attention.o, "gate": mlpBlock.gate, "up": mlpBlock.up, "down": mlpBlock.down} {
		if m.Weight == nil || (m.Bias != nil) != slices.Contains([]string{"q", "k", "v"}, what) {
			t.Errorf("%s: weight %v, bias %v", what, m.Weight, m.Bias)
		}
	}
	if attention.norm == nil || mlpBlock.norm == nil || attention.qNorm != nil || l.layer != architecture.Model {
		t.Errorf("norms %v %v %v, at layer %d", attention.norm, mlpBlock.norm, attention.qNorm, l.layer)
	}
	l.src = src
	if err := l.block(1, y); err == nil || err.Error() != "tensor model.layers.1.transformer.attend.query.weight is missing" {
		t.Errorf("a source with other names: %v", err)
	}
	for k := range mlp {
		if mlp[k].Role == architecture.Up {
			mlp[k].Name = "transformer.another_up.weight"
		}
	}
	l = &loader{ctx: t.Context(), b: b, src: renamed{src}, config: config, table: &other}
	other.Layers[1].Parameters = mlp
	if err := l.block(1, y); err == nil || err.Error() != "tensor model.layers.1.transformer.another_up.weight is missing" {
		t.Errorf("no form of a projection: %v", err)
	}
	other.Layers = other.Layers[:1]
	l = &loader{ctx: t.Context(), b: b, src: renamed{src}, config: config, table: &other}
	if err := l.block(0, y); err == nil || err.Error() != "the table of qwen2 has no mlp norm in layer 0" {
		t.Errorf("a table without an MLP: %v", err)
	}
}
