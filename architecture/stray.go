package architecture

import (
	"slices"
	"strings"
)

// OfLayer reports whether a name that no table has is that of a layer's weights.
func OfLayer(name string) bool { return strings.HasPrefix(name, layerPrefix) && !ofQuantisation(name) }

// Harmless reports whether a tensor that no table has is known to change nothing of a
// model's text.
func Harmless(c *Config, name string) bool {
	parts := strings.Split(name, ".")
	last := parts[len(parts)-1]
	switch {
	case slices.ContainsFunc(parts[:min(2, len(parts))], func(s string) bool { return slices.Contains(otherSenses, s) }):
		return true
	case slices.Contains(buffers, last), slices.Contains(parts, "rotary_emb"):
		return true
	case slices.Contains(cacheScales, last):
		return true
	case ofQuantisation(name): // what activations are scaled by, which are not here, or what weights were made of
		return c.Published != nil
	}
	return c.MTPLayers == 0 && strings.HasPrefix(name, mtpPrefix) // a head for drafts of a model that runs without
}

// otherSenses begin the names of tensors of images and sound.
var otherSenses = []string{"visual", "vision_tower", "vision_model", "audio_tower", "multi_modal_projector"}

// buffers are tables that older versions of transformers stored.
var buffers = []string{"inv_freq", "cos_cached", "sin_cached", "masked_bias", "position_ids"}

// cacheScales are those of keys and values that other engines store in 8 bits.
var cacheScales = []string{"k_scale", "v_scale", "q_scale", "kv_scale", "k_zero_point", "v_zero_point", "prob_scale", "prob_output_scale", "k_global_scale", "v_global_scale"}

// ofQuantisation reports whether a name is one that forms of quantised weights have beside
// a weight: its scales, zeros and shape, and what activations are scaled by.
func ofQuantisation(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "g_idx" || last == "qzeros" || last == "scales" || last == "biases" {
		return true
	}
	for _, of := range []string{"weight_", "input_", "output_", "activation_"} {
		if rest, ok := strings.CutPrefix(last, of); ok {
			return slices.Contains([]string{"scale", "scale_inv", "scale_2", "global_scale", "zero_point", "shape", "g_idx"}, rest)
		}
	}
	return false
}
