package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"windrow/architecture"
	"windrow/backend"
	"windrow/quant"
)

// The names of a text model's tensors in a model that sees images, too: as Hugging
// Face writes them, and as MLX does. The first prefix that a name has is replaced.
var wrapped = []struct{ prefix, plain string }{
	{"model.language_model.", "model."},
	{"language_model.model.", "model."},
	{"language_model.", ""},
}

// images are what the names of tensors begin with that a text model ignores.
var images = []string{"model.visual.", "visual.", "vision_tower.", "model.vision_tower."}

// plainName is the name of a tensor, or a module, in a text model of its own; false for
// one that is no part of it.
func plainName(c *Config, name string) (string, bool) {
	if architecture.Of(c).Wrapper == "" {
		return name, true
	}
	for _, prefix := range images {
		if strings.HasPrefix(name, prefix) {
			return name, false
		}
	}
	for _, w := range wrapped {
		if rest, ok := strings.CutPrefix(name, w.prefix); ok {
			return w.plain + rest, true
		}
	}
	return name, true
}

// settleHybrid settles what the tensors of a hybrid tell and its config does not: the
// form of the folder, a head of its own, and one for drafts. Tensors then are as
// Hugging Face has them, but for norms, which are whole.
func (c *Checkpoint) settleHybrid() error {
	a := architecture.Of(c.config)
	if !a.Hybrid() {
		return nil
	}
	if slices.ContainsFunc(c.names, func(name string) bool { return strings.HasPrefix(name, "mtp.") }) {
		c.config.MTPLayers = 1
	}
	_, untied := c.tensors["lm_head.weight"]
	c.config.TieEmbeddings = !untied
	converted, err := c.turnConvolutions(a)
	if err != nil || converted {
		return err
	}
	for _, name := range c.names {
		p, known := a.Find(c.config, name)
		if !known || !p.ZeroCentred {
			continue
		}
		whole, err := WholeNorm(c.tensors[name])
		switch {
		case err == nil:
			c.tensors[name] = whole
		case p.Layer < c.config.Layers: // a head for drafts that is not used may be broken
			return err
		}
	}
	return nil
}

// WholeNorm is the vector of a norm, in f32, of one that is stored as what it is above
// 1.
func WholeNorm(t backend.Tensor) (backend.Tensor, error) {
	values, err := quant.Vector(t)
	if err != nil {
		return t, err
	}
	for i := range values {
		values[i]++
	}
	t.DType, t.Data = backend.F32, make([]byte, 4*len(values))
	quant.Blocks(t.Data, backend.F32, values)
	return t, nil
}

// checkDrafts refuses what a head for drafts has beyond one layer.
func (c *Checkpoint) checkDrafts(name string) error {
	number, ok := strings.CutPrefix(name, "mtp.layers.")
	if ok && !strings.HasPrefix(number, "0.") && architecture.Of(c.config).Hybrid() {
		return fmt.Errorf("tensor %.80q: want one layer in a head for drafts, mtp.layers.0", name)
	}
	return nil
}

// turnConvolutions gives each kernel the shape that Hugging Face has, [channels, 1,
// rows], and reports whether they were in MLX's, [channels, rows, 1]: the norms of
// such a folder are whole. The bytes are the same.
func (c *Checkpoint) turnConvolutions(a *architecture.Architecture) (converted bool, err error) {
	first := ""
	for _, name := range c.names {
		p, known := a.Find(c.config, name)
		if !known || p.Role != architecture.DeltaConv {
			continue
		}
		t := c.tensors[name]
		turned := len(t.Shape) == 3 && t.Shape[2] == 1 && t.Shape[1] > 1
		if first == "" {
			first, converted = name, turned
		}
		if turned != converted {
			return false, fmt.Errorf("tensors %s and %s: shapes of two forms, want [channels, 1, rows] in both, or [channels, rows, 1] as MLX has it", first, name)
		}
		if turned {
			t.Shape = []int{t.Shape[0], 1, t.Shape[1]}
			c.tensors[name] = t
		}
	}
	return converted, nil
}
