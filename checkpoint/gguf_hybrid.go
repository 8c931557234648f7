package checkpoint

import (
	"fmt"
	"math"
	"strings"

	"windrow/architecture"
)

// ggufDelta maps the fields of a config.json that say the shape of DeltaNets to
// metadata, all of which has to be there.
var ggufDelta = []struct{ field, key string }{
	{"linear_conv_kernel_dim", "ssm.conv_kernel"},
	{"linear_key_head_dim", "ssm.state_size"},
	{"linear_num_key_heads", "ssm.group_count"},
	{"linear_num_value_heads", "ssm.time_step_rank"},
}

// hybridFields adds what hybrids have to the fields of a config.json, which has those
// of other models.
func (g *GGUF) hybridFields(a *architecture.Architecture, c map[string]any) error {
	number := func(key string) (float64, error) {
		value, ok := g.Value(a.GGUF + "." + key)
		if !ok {
			return 0, fmt.Errorf("%s.%s: missing", a.GGUF, key)
		}
		n := ggufNumberOf(value)
		if !(n >= 0 && n <= math.MaxInt32) || n != math.Trunc(n) {
			return 0, fmt.Errorf("%s.%s: found %s, want a whole number", a.GGUF, key, found(value))
		}
		return n, nil
	}
	for _, f := range ggufDelta {
		n, err := number(f.key)
		if err != nil {
			return err
		}
		c[f.field] = n
	}
	inner, err := number("ssm.inner_size")
	if err != nil {
		return err
	}
	heads := c["linear_num_value_heads"].(float64)
	if dim := inner / heads; !(dim >= 1 && dim <= inner) || dim != math.Trunc(dim) {
		return fmt.Errorf("%s.ssm.inner_size: found %v, want a multiple of ssm.time_step_rank %v", a.GGUF, inner, heads)
	}
	c["linear_value_head_dim"] = inner / heads
	if a.TiledInGGUF && heads != c["linear_num_key_heads"] {
		c[valueHeadOrder] = "tiled"
	}
	if err := g.hybridRotation(a, c, number); err != nil {
		return err
	}
	if err := g.hybridLayers(a, c, number); err != nil {
		return err
	}
	if a.Mixture() {
		c["shared_expert_intermediate_size"] = g.sharedInner(a)
		if n, err := number("expert_shared_feed_forward_length"); err == nil {
			c["shared_expert_intermediate_size"] = n
		}
	}
	return nil
}

// hybridRotation says how much of a head rotates.
func (g *GGUF) hybridRotation(a *architecture.Architecture, c map[string]any, number func(string) (float64, error)) error {
	dims, err := number("rope.dimension_count")
	if err != nil {
		return err
	}
	head, ok := c["head_dim"].(float64)
	if !ok || head < 1 {
		return fmt.Errorf("%s.attention.key_length: missing", a.GGUF)
	}
	c["partial_rotary_factor"] = dims / head
	sections, ok := g.Value(a.GGUF + ".rope.dimension_sections")
	if !ok {
		return nil
	}
	sum := 0.0
	for _, n := range ggufNumbersOf(sections) {
		sum += n
	}
	if sum != dims/2 {
		return fmt.Errorf("%s.rope.dimension_sections: found %s, want numbers that sum up to %v: half of rope.dimension_count", a.GGUF, found(sections), dims/2)
	}
	return nil
}

// hybridLayers says which layers are DeltaNets. The blocks of a head for drafts count
// among the file's, at their end.
func (g *GGUF) hybridLayers(a *architecture.Architecture, c map[string]any, number func(string) (float64, error)) error {
	blocks := c["num_hidden_layers"].(float64)
	if _, ok := g.Value(a.GGUF + ".nextn_predict_layers"); ok {
		drafts, err := number("nextn_predict_layers")
		if err != nil {
			return err
		}
		if drafts >= blocks {
			return fmt.Errorf("%s.nextn_predict_layers: found %v, want fewer than block_count %v", a.GGUF, drafts, blocks)
		}
		c["num_hidden_layers"] = blocks - drafts
		c["mtp_num_hidden_layers"] = drafts
	}
	for _, t := range g.Tensors {
		if strings.HasSuffix(t.Name, ".nextn.embed_tokens.weight") || strings.HasSuffix(t.Name, ".nextn.shared_head_head.weight") {
			c["mtp_use_dedicated_embeddings"] = true
		}
	}
	if _, ok := g.Value(a.GGUF + ".full_attention_interval"); ok {
		interval, err := number("full_attention_interval")
		if err != nil {
			return err
		}
		c["full_attention_interval"] = interval
	}
	value, ok := g.Value(a.GGUF + ".attention.recurrent_layers")
	if !ok {
		return nil
	}
	marks := ggufNumbersOf(value)
	layers := c["num_hidden_layers"].(float64)
	if n := float64(len(marks)); n != blocks && n != layers {
		return fmt.Errorf("%s.attention.recurrent_layers: found %d, want one for each of %v blocks", a.GGUF, len(marks), blocks)
	}
	var kinds []string
	for _, mark := range marks[:int(layers)] {
		kind := fullAttention
		if mark != 0 {
			kind = linearAttention
		}
		kinds = append(kinds, kind)
	}
	c["layer_types"] = kinds
	return nil
}

// sharedInner is the width of the expert that every row has, by its tensor; 0 where
// there is none.
func (g *GGUF) sharedInner(a *architecture.Architecture) int {
	for _, t := range g.Tensors {
		if p, _, ok := a.FromGGUF(&Config{}, t.Name); ok && p.Role == architecture.SharedGate {
			return t.Shape[0]
		}
	}
	return 0
}

// draftLayers is how many blocks the file has behind the layers that are those of a
// head for drafts.
func (g *GGUF) draftLayers(c *Config) int {
	prefix := fmt.Sprintf("blk.%d.nextn.", c.Layers)
	for _, t := range g.Tensors {
		if architecture.Of(c).Hybrid() && strings.HasPrefix(t.Name, prefix) {
			return 1
		}
	}
	return 0
}

// ggufNumbersOf are a list's elements as numbers, truth as 0 and 1; nil where it is no
// list of them.
func ggufNumbersOf(value any) (list []float64) {
	switch v := value.(type) {
	case []bool:
		for _, b := range v {
			n := 0.0
			if b {
				n = 1
			}
			list = append(list, n)
		}
	case []uint8:
		list = numbersOf(v)
	case []int8:
		list = numbersOf(v)
	case []uint16:
		list = numbersOf(v)
	case []int16:
		list = numbersOf(v)
	case []uint32:
		list = numbersOf(v)
	case []int32:
		list = numbersOf(v)
	case []uint64:
		list = numbersOf(v)
	case []int64:
		list = numbersOf(v)
	}
	return list
}

func numbersOf[T uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64](v []T) (list []float64) {
	for _, n := range v {
		list = append(list, float64(n))
	}
	return list
}
