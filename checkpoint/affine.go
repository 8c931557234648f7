package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"windrow/architecture"
	"windrow/backend"
)

// Quantization is the entry "quantization" of a config.json, AffineFormat a width
// and a group length in it.
type (
	Quantization = architecture.Quantization
	AffineFormat = architecture.AffineFormat
)

// readQuantization reads quantization, or quantization_config: MLX's alias of
// it, or that of another method.
func readQuantization(c *Config, f *fields) (*Quantization, *Published) {
	name := "quantization"
	o := f.object(name)
	if o == nil {
		name = "quantization_config"
		o = f.object(name)
	}
	if o == nil {
		return nil, nil
	}
	method := o.text("quant_method", "affine")
	if o.has("load_in_4bit") || o.has("load_in_8bit") {
		method = "bitsandbytes" // which has not always said so
	}
	if method != "affine" {
		return nil, readPublished(f, o, name, method)
	}
	q := &Quantization{AffineFormat: o.affine(AffineFormat{}), Layers: map[string]*AffineFormat{}}
	if o.err != nil {
		f.fail("%s.%w", name, o.err)
		return nil, nil
	}
	for _, key := range slices.Sorted(maps.Keys(o.raw)) {
		raw := o.raw[key]
		module, _ := plainName(c, key)
		switch {
		case key == "group_size", key == "bits", key == "mode", key == "quant_method":
			continue
		case string(raw) == "false":
			q.Layers[module] = nil
		case string(raw) == "true", string(raw) == "null":
			continue // as the rest
		case raw[0] == '{':
			layer := o.object(key)
			format := layer.affine(q.AffineFormat)
			if layer.err != nil {
				f.fail("%s.%.80s: %w", name, key, layer.err)
				return nil, nil
			}
			q.Layers[module] = &format
		case strings.Contains(key, "."), isModule(c, module):
			o.mismatch(key, "false, or group_size and bits")
			f.fail("%s.%w", name, o.err)
			return nil, nil
		}
	}
	return q, nil
}

// isModule reports whether the model has a weight of that module.
func isModule(c *Config, module string) bool {
	_, ok := architecture.Of(c).Find(c, module+".weight")
	return ok
}

// affine reads group_size and bits; missing ones are taken from fallback,
// where that has them.
func (f *fields) affine(fallback AffineFormat) AffineFormat {
	orRequired := func(n int) int {
		if n == 0 {
			return required
		}
		return n
	}
	a := AffineFormat{
		Bits:  f.integer("bits", 1, 32, orRequired(fallback.Bits)),
		Group: f.integer("group_size", 1, 1<<20, orRequired(fallback.Group)),
	}
	if mode := f.text("mode", "affine"); mode != "affine" {
		f.fail("mode: found %.40q, want affine", mode)
	}
	if f.err == nil && a.Bits != 4 && a.Bits != 8 {
		f.fail("bits: found %d, want 4 or 8", a.Bits)
	}
	if f.err == nil && a.Group != 32 && a.Group != 64 && a.Group != 128 {
		f.fail("group_size: found %d, want 32, 64 or 128", a.Group)
	}
	return a
}

// joinAffine makes each packed X.weight one tensor with its X.scales and
// X.biases, which may lie in another shard. Nothing is copied.
func (c *Checkpoint) joinAffine() error {
	taken := map[string]bool{}
	for _, name := range c.names {
		packed, ok := c.packed[name]
		if !ok {
			continue
		}
		module := strings.TrimSuffix(name, ".weight")
		t, err := c.affineTensor(module, packed.RawTensor)
		if err != nil {
			return fmt.Errorf("%s: %w", c.files.path(packed.file), err)
		}
		c.tensors[name] = t
		taken[module+".scales"], taken[module+".biases"] = true, true
	}
	c.names = slices.DeleteFunc(c.names, func(name string) bool { return taken[name] })
	for name := range taken {
		delete(c.tensors, name)
	}
	c.packed = nil
	return nil
}

// affineTensor checks the three parts against each other and the config.
func (c *Checkpoint) affineTensor(module string, packed RawTensor) (backend.Tensor, error) {
	none := backend.Tensor{}
	format, ok := c.config.Quantization.Of(module)
	switch {
	case c.config.Quantization == nil:
		return none, fmt.Errorf("tensor %.80q has dtype U32, and %s has no quantization that says bits and group_size: want F32, F16, BF16 or that entry", packed.Name, ConfigFile)
	case !ok:
		return none, fmt.Errorf("tensor %.80q has dtype U32, and the quantization of %s leaves it out", packed.Name, ConfigFile)
	case len(packed.Shape) != 2 && len(packed.Shape) != 3:
		return none, fmt.Errorf("tensor %.80q: shape %v, want [out, words], or [experts, out, words]", packed.Name, packed.Shape)
	}
	// A word is 4 bytes that are there: out · in cannot overflow.
	last := len(packed.Shape) - 1
	words := packed.Shape[last]
	shape := append(slices.Clone(packed.Shape[:last]), words*32/format.Bits)
	groups := append(slices.Clone(packed.Shape[:last]), shape[last]/format.Group)
	parts := [2][]byte{}
	for i, suffix := range []string{".scales", ".biases"} {
		t, ok := c.tensors[module+suffix]
		if !ok {
			return none, fmt.Errorf("tensor %.80q is packed, and %s%s is missing", packed.Name, module, suffix)
		}
		if t.DType != backend.BF16 {
			return none, fmt.Errorf("tensor %.80q: found %v, want bf16: take the model in bf16, its GGUF form, or MLX groups with scales in bf16", t.Name, t.DType)
		}
		if !slices.Equal(t.Shape, groups) || groups[last]*format.Group != shape[last] {
			return none, fmt.Errorf("tensor %.80q: shape %v, want [%s%d/%d] for %d words a row of %v", t.Name, t.Shape, rowsOf(shape), shape[last], format.Group, words, format)
		}
		parts[i] = t.Data
	}
	t := backend.Tensor{Name: packed.Name, DType: format.DType(), Shape: shape, Data: packed.Data,
		Group: format.Group, Scales: parts[0], Biases: parts[1]}
	return t, t.Check()
}

// rowsOf is how an error writes all dimensions but the last.
func rowsOf(shape []int) (s string) {
	for _, n := range shape[:len(shape)-1] {
		s += fmt.Sprintf("%d, ", n)
	}
	return s
}
