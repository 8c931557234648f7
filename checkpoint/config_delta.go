package checkpoint

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"windrow/architecture"
)

// DeltaNet is the shape of a model's gated DeltaNet layers.
type DeltaNet = architecture.DeltaNet

// maxDeltaDim bounds a head of a DeltaNet; published models have 128.
const maxDeltaDim = 1024

// The kinds of layer_types.
const (
	fullAttention   = "full_attention"
	linearAttention = "linear_attention"
)

// readHybrid reads what models with gated DeltaNets have beside others.
func readHybrid(c *Config, f *fields) {
	d := &DeltaNet{
		KeyHeads:   f.integer("linear_num_key_heads", 1, maxHeads, 16),
		ValueHeads: f.integer("linear_num_value_heads", 1, maxHeads, 32),
		KeyDim:     f.integer("linear_key_head_dim", 1, maxDeltaDim, 128),
		ValueDim:   f.integer("linear_value_head_dim", 1, maxDeltaDim, 128),
		Conv:       f.integer("linear_conv_kernel_dim", 2, 8, 4),
	}
	if f.err == nil && d.ValueHeads%d.KeyHeads != 0 {
		f.fail("linear_num_value_heads: found %d, want a multiple of linear_num_key_heads %d", d.ValueHeads, d.KeyHeads)
	}
	if act := f.text("output_gate_type", "silu"); act != "silu" && act != "swish" {
		f.fail("output_gate_type: found %.40q, want silu or swish", act)
	}
	switch order := f.text(valueHeadOrder, "grouped"); order {
	case "grouped":
	case "tiled":
		d.Tiled = true
	default:
		f.fail("%s: found %.40q, want grouped or tiled", valueHeadOrder, order)
	}
	if f.boolean("attention_bias", false) {
		f.fail("attention_bias: found true, want false: attention of these models has no biases")
	}
	c.AttentionGate = f.boolean("attn_output_gate", true)
	f.integer("mtp_num_hidden_layers", 0, 1, 0) // the tensors say whether there is one
	if f.boolean("mtp_use_dedicated_embeddings", false) {
		f.fail("mtp_use_dedicated_embeddings: found true, want false: drafts have the model's own embedding")
	}
	d.Layers = readLayerTypes(c, f)
	c.Delta = d
}

// valueHeadOrder is a field of our own, which stands for an order of value heads that
// only GGUF files have: see DeltaNet.Tiled.
const valueHeadOrder = "linear_value_head_order"

// readLayerTypes marks the layers that are DeltaNets.
func readLayerTypes(c *Config, f *fields) []bool {
	interval := f.integer("full_attention_interval", 1, maxLayers, architecture.Of(c).Defaults.Interval)
	if f.err != nil {
		return nil
	}
	layers := architecture.Interleaved(c.Layers, interval)
	if f.has("layer_types") {
		kinds := f.texts("layer_types")
		if f.err == nil && len(kinds) != c.Layers {
			f.fail("layer_types: found %d, want one for each of num_hidden_layers %d", len(kinds), c.Layers)
		}
		if f.err != nil {
			return nil
		}
		for i, kind := range kinds {
			if kind != fullAttention && kind != linearAttention {
				f.fail("layer_types: found %.40q, want %s or %s", kind, fullAttention, linearAttention)
			}
			layers[i] = kind == linearAttention
		}
	}
	if !slices.Contains(layers, true) || !slices.Contains(layers, false) {
		f.fail("layer_types: found %d layers of one kind, want some of %s and some of %s", c.Layers, fullAttention, linearAttention)
	}
	return layers
}

// unwrap makes one object of a config.json of a model that sees images, too: its text
// model's fields are those of text_config, and stand before the others.
func unwrap(f *fields) {
	text := f.object("text_config")
	if text == nil {
		return
	}
	delete(text.raw, "model_type")
	delete(text.raw, "architectures")
	for name, raw := range text.raw {
		if string(raw) == "null" && f.has(name) { // tokens stand in either
			delete(text.raw, name)
		}
	}
	raw := maps.Clone(f.raw)
	maps.Copy(raw, text.raw)
	f.raw = raw
}

// rotatedDims is how many elements of a head a factor says, as transformers has it: the
// whole part.
func rotatedDims(c *Config, factor float64) (int, error) {
	n := float64(c.HeadDim) * factor
	if whole := math.Round(n); math.Abs(n-whole) < 1e-6 {
		n = whole
	}
	n = math.Trunc(n)
	if !(n >= 2 && n <= float64(c.HeadDim)) || math.Mod(n, 2) != 0 {
		return 0, fmt.Errorf("partial_rotary_factor: found %g, %g of head_dim %d: want an even number from 2 to that", factor, n, c.HeadDim)
	}
	return int(n), nil
}

// checkSections compares mrope_section with the dims that rotate: text has one position
// for all sections, so that they rotate as if there were none.
func checkSections(p *fields, rotated int) {
	sum := 0
	for _, n := range p.integers("mrope_section", 8) {
		if n < 0 || n > rotated {
			p.fail("mrope_section: found %d, want sizes that sum up to %d", n, rotated/2)
			return
		}
		sum += n
	}
	if p.err == nil && sum != rotated/2 {
		p.fail("mrope_section: found %d in all, want %d: half of what rotates", sum, rotated/2)
	}
}
