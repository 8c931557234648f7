package convert

import (
	"fmt"
	"testing"

	"windrow/architecture"
)

// classOf is the class of a module's weight in Qwen3's table.
func classOf(t *testing.T, module string) architecture.Class {
	t.Helper()
	c := &architecture.Config{Architecture: "qwen3", Layers: 12}
	p, ok := architecture.Of(c).Find(c, module+".weight")
	if !ok {
		t.Fatalf("%s: not in the table", module)
	}
	return p.Class
}

func TestPolicy(t *testing.T) {
	for _, tc := range []struct {
		policy Policy
		module string
		in     int
		want   string
	}{
		{DefaultPolicy(), "model.layers.0.mlp.down_proj", 128, "4"},
		{DefaultPolicy(), "lm_head", 128, "16 selective"},
		{DefaultPolicy(), "model.embed_tokens", 128, "16 selective"},
		{DefaultPolicy(), "model.layers.0.mlp.down_proj", 96, "16 rows of 96 are no multiple of 64"},
		{Policy{Bits: 8, Group: 32}, "lm_head", 96, "8"},
		{Policy{Bits: 4, Group: 64, Selective: true, Include: []string{"lm_head"}}, "lm_head", 64, "4"},
		{Policy{Bits: 4, Group: 64, Selective: true, Include: []string{"lm_head"}, Exclude: []string{"lm_*"}}, "lm_head", 64, "16 excluded"},
		{Policy{Bits: 4, Group: 64, Exclude: []string{"layers.1"}}, "model.layers.1.mlp.up_proj", 64, "16 excluded"},
		{Policy{Bits: 4, Group: 64, Exclude: []string{"layers.1"}}, "model.layers.11.mlp.up_proj", 64, "4"},
		{Policy{Bits: 4, Group: 64, Exclude: []string{"layers.1*.mlp"}}, "model.layers.11.mlp.up_proj", 64, "16 excluded"},
		{Policy{Bits: 4, Group: 64, Exclude: []string{"model.layers.0.mlp.up_proj.weight"}}, "model.layers.0.mlp.up_proj", 64, "16 excluded"},
		{Policy{Bits: 4, Group: 64, Exclude: []string{"p_proj"}}, "model.layers.0.mlp.up_proj", 64, "4"},
		{Policy{Bits: 4, Group: 64, Widths: []Width{{"down_proj", 8}, {"layers.0", 16}}}, "model.layers.1.mlp.down_proj", 64, "8"},
		{Policy{Bits: 4, Group: 64, Widths: []Width{{"down_proj", 8}, {"layers.0", 16}}}, "model.layers.0.mlp.down_proj", 64, "16 16 bits asked for"},
	} {
		rules, err := tc.policy.Rules()
		if err != nil {
			t.Fatal(err)
		}
		bits, reason := rules.Bits(tc.module, classOf(t, tc.module), tc.in)
		got := fmt.Sprint(bits)
		if reason != "" {
			got += " " + reason
		}
		if got != tc.want {
			t.Errorf("%+v, %s of %d: %q, want %q", tc.policy, tc.module, tc.in, got, tc.want)
		}
	}
	for _, p := range []Policy{{Bits: 3, Group: 64}, {Bits: 4}, {Bits: 4, Group: 64, Include: []string{""}}, {Bits: 4, Group: 64, Exclude: []string{"a b"}},
		{Bits: 4, Group: 64, Widths: []Width{{"a", 5}}}, {Bits: 4, Group: 64, Widths: []Width{{"", 4}}}} {
		if _, err := p.Rules(); err == nil {
			t.Errorf("%+v: no error", p)
		}
	}
	if w, err := ParseWidth("down_proj=8"); err != nil || w != (Width{"down_proj", 8}) {
		t.Errorf("width %+v, %v", w, err)
	}
	for _, s := range []string{"", "=4", "a", "a=5", "a=44"} {
		if _, err := ParseWidth(s); err == nil {
			t.Errorf("width %q: no error", s)
		}
	}
}
