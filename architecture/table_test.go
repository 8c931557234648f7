package architecture

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
)

// small is a config whose sizes are all different.
func small(name string) *Config {
	return &Config{Architecture: name, HiddenSize: 40, Layers: 3, Heads: 6, KVHeads: 2, HeadDim: 16, IntermediateSize: 72, VocabSize: 97}
}

// demanded reports whether some model needs a parameter.
func demanded(n Need) bool { return n == Required || n == NeededUntied }

// faults lists what is wrong with an architecture's table for a config.
func faults(a *Architecture, c *Config) (list []string) {
	fault := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	seen := map[string]bool{}
	once := func(what, name string) {
		if name == "" || seen[what+name] {
			fault("%s %q: want one, once", what, name)
		}
		seen[what+name] = true
	}
	parts := append([]Part{{Parameters: a.Input}}, a.Layers...)
	translated := map[string]string{}
	for _, part := range append(parts, Part{Parameters: a.Output}) {
		for _, p := range part.Parameters {
			switch {
			case p.Role == "" || p.Class == 0 || len(p.Shape) == 0 || slices.ContainsFunc(p.Shape, func(d Dim) bool { return d == nil }):
				fault("%s: want a role, a class and a shape", p.Name)
			case strings.Contains(p.Name, "#") != (p.Each != nil) || strings.Contains(p.GGUF, "#"):
				fault("%s: want a # where each expert has a tensor of its own, and there alone", p.Name)
			case p.Each != nil && p.GGUF != "":
				fault("%s: GGUF files stack experts", p.Name)
			case p.Split == backend.SplitInputs && (len(p.Shape) < 2 || p.Class == ClassBias):
				fault("%s: a vector has no inputs to split", p.Name)
			}
			if other, ok := translated[p.GGUF]; ok && p.GGUF != "" && other != p.Name {
				fault("gguf %s: stands for %s and for %s", p.GGUF, other, p.Name)
			}
			translated[p.GGUF] = p.Name
		}
	}
	if len(list) > 0 { // a row cannot be made a tensor
		return list
	}
	role := map[string]Need{}
	for _, t := range a.Tensors(c) {
		once("name", t.Name)
		if t.GGUF != "" {
			once("gguf", t.GGUF)
		}
		key := fmt.Sprint(t.Layer, " ", t.Role, " ", t.Class)
		if need, ok := role[key]; ok && t.Expert <= 0 && (demanded(need) || demanded(t.Need)) {
			fault("%s: a second form of %s: want all forms optional", t.Name, t.Role)
		}
		role[key] = t.Need
	}
	for _, want := range []struct {
		role  Role
		class Class
	}{{Embedding, ClassEmbedding}, {FinalNorm, ClassNorm}, {Head, ClassHead}} {
		if len(a.Role(c, Model, want.role, want.class)) != 1 {
			fault("want one %s", want.role)
		}
	}
	return list
}

// denseRoles are those that every layer of a dense transformer has.
var denseRoles = []struct {
	role  Role
	class Class
}{
	{AttentionNorm, ClassNorm}, {Query, ClassProjection}, {Key, ClassProjection}, {Value, ClassProjection}, {Output, ClassProjection},
	{QueryNorm, ClassNorm}, {KeyNorm, ClassNorm}, {MLPNorm, ClassNorm}, {Gate, ClassProjection}, {Up, ClassProjection}, {Down, ClassProjection},
	{Query, ClassBias}, {Key, ClassBias}, {Value, ClassBias}, {Output, ClassBias}, {Gate, ClassBias}, {Up, ClassBias}, {Down, ClassBias},
}

// missing lists the roles that a dense layer lacks.
func missing(a *Architecture, c *Config) (list []string) {
	for layer := range c.Layers {
		for _, want := range denseRoles {
			if want.class == ClassBias && a.Hybrid() { // which have none
				if len(a.Role(c, layer, want.role, want.class)) != 0 {
					list = append(list, fmt.Sprintf("layer %d: a bias of %s", layer, want.role))
				}
				continue
			}
			if len(a.Role(c, layer, want.role, want.class)) != 1 {
				list = append(list, fmt.Sprintf("layer %d: want one %s", layer, want.role))
			}
		}
	}
	return list
}

func TestTables(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range All() {
		c := small(a.Name)
		for _, fault := range append(faults(a, c), missing(a, c)...) {
			t.Errorf("%s: %s", a.Name, fault)
		}
		for _, name := range []string{"name " + a.Name, "class " + a.Class} {
			if seen[name] || a.Name == "" || a.Class == "" {
				t.Errorf("%s: want a name and a class of its own", name)
			}
			seen[name] = true
		}
		if len(a.Shared) == 0 {
			t.Errorf("%s: nothing says what devices share", a.Name)
		}
	}
}

// A table with a row too many, too few or wrong is found out.
func TestFaultyTables(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*Architecture)
		want string
	}{
		{"a row twice", func(a *Architecture) {
			a.Layers[0].Parameters = append(a.Layers[0].Parameters, a.Layers[0].Parameters[1])
		}, `name "model.layers.0.self_attn.q_proj.weight": want one, once`},
		{"a row in two parts", func(a *Architecture) {
			a.Layers[1].Parameters = append(a.Layers[1].Parameters, a.Layers[0].Parameters[3])
		}, `gguf "blk.2.attn_v.weight": want one, once`},
		{"two names of one role", func(a *Architecture) {
			p := a.Layers[0].Parameters[1]
			p.Name, p.GGUF = "self_attn.query.weight", ""
			a.Layers[0].Parameters = append(a.Layers[0].Parameters, p)
		}, "a second form of query: want all forms optional"},
		{"one GGUF name of two", func(a *Architecture) { a.Layers[0].Parameters[2].GGUF = "attn_q.weight" }, "gguf attn_q.weight: stands for self_attn.q_proj.weight and for self_attn.k_proj.weight"},
		{"no name", func(a *Architecture) { a.Output[0].Name = "" }, `name "": want one, once`},
		{"no head", func(a *Architecture) { a.Output = a.Output[:1] }, "want one head"},
		{"no embedding", func(a *Architecture) { a.Input = nil }, "want one embedding"},
		{"no output projection", func(a *Architecture) { a.Layers[0].Parameters = slices.Delete(a.Layers[0].Parameters, 9, 10) }, "layer 2: want one attention output"},
		{"no bias", func(a *Architecture) { a.Layers[1].Parameters = a.Layers[1].Parameters[:6] }, "layer 0: want one down"},
		{"no MLP in a layer", func(a *Architecture) { a.Layers[1].In = func(_ *Config, layer int) bool { return layer != 1 } }, "layer 1: want one gate"},
		{"no class", func(a *Architecture) { a.Layers[1].Parameters[1].Class = 0 }, "mlp.gate_proj.weight: want a role, a class and a shape"},
		{"no shape", func(a *Architecture) { a.Layers[1].Parameters[1].Shape = nil }, "want a role, a class and a shape"},
		{"half a shape", func(a *Architecture) { a.Layers[1].Parameters[1].Shape[1] = nil }, "want a role, a class and a shape"},
		{"a bias without inputs", func(a *Architecture) { a.Layers[1].Parameters[6].Split = backend.SplitInputs }, "a vector has no inputs to split"},
		{"experts under one name", func(a *Architecture) { a.Layers[1].Parameters[1].Each = heads }, "want a # where each expert"},
	} {
		a := dense(Architecture{Name: "faulty", Class: "Faulty"}, Optional, Optional)
		tc.edit(a)
		c := small("faulty")
		found := faults(a, c)
		if len(found) == 0 {
			found = missing(a, c)
		}
		if !strings.Contains(strings.Join(found, "\n"), tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, found, tc.want)
		}
	}
}
