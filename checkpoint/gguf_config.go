package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"windrow/architecture"
)

// ggufFields maps the fields of a config.json to the metadata of a GGUF file,
// after the architecture's name; ggufRope those of its rope_scaling.
var (
	ggufFields = map[string]string{
		"hidden_size":             "embedding_length",
		"num_hidden_layers":       "block_count",
		"num_attention_heads":     "attention.head_count",
		"num_key_value_heads":     "attention.head_count_kv",
		"head_dim":                "attention.key_length",
		"intermediate_size":       "feed_forward_length",
		"rms_norm_eps":            "attention.layer_norm_rms_epsilon",
		"max_position_embeddings": "context_length",
		"rope_theta":              "rope.freq_base",
	}
	// ggufExperts are those of mixtures, which always make the weights sum up to 1.
	ggufExperts = map[string]string{
		"num_experts":           "expert_count",
		"num_experts_per_tok":   "expert_used_count",
		"moe_intermediate_size": "expert_feed_forward_length",
	}
	ggufRope = map[string]string{
		"factor":                           "rope.scaling.factor",
		"original_max_position_embeddings": "rope.scaling.original_context_length",
		"attention_factor":                 "rope.scaling.attn_factor",
		"beta_fast":                        "rope.scaling.yarn_beta_fast",
		"beta_slow":                        "rope.scaling.yarn_beta_slow",
	}
	ggufRequired = []string{"hidden_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps", "max_position_embeddings"}
)

// configJSON makes the config.json that stands for the file's metadata: the
// one parser of configs then checks every size.
func (g *GGUF) configJSON() ([]byte, error) {
	value, _ := g.Value("general.architecture")
	arch, _ := value.(string)
	var a *architecture.Architecture
	for _, known := range architecture.All() {
		if known.GGUF == arch && arch != "" {
			a = known
		}
	}
	if a == nil {
		return nil, fmt.Errorf("general.architecture: found %.60q, want %s", fmt.Sprint(value), ggufArchitectures(" or "))
	}
	c := map[string]any{"model_type": a.Name, "architectures": []string{a.Class}, "hidden_act": "silu"}
	take := func(into map[string]any, field, key string) error {
		value, ok := g.Value(arch + "." + key)
		if !ok {
			return nil
		}
		number := ggufNumberOf(value)
		if math.IsNaN(number) || math.IsInf(number, 0) {
			return fmt.Errorf("%s.%s: found %s, want a number", arch, key, found(value))
		}
		into[field] = number
		return nil
	}
	for field, key := range ggufFields {
		if err := take(c, field, key); err != nil {
			return nil, err
		}
	}
	for _, field := range ggufRequired {
		if c[field] == nil {
			return nil, fmt.Errorf("%s.%s: missing", arch, ggufFields[field])
		}
	}
	if !a.Mixture() && c["intermediate_size"] == nil {
		return nil, fmt.Errorf("%s.%s: missing", arch, ggufFields["intermediate_size"])
	}
	if a.Mixture() {
		c["norm_topk_prob"] = true
		for field, key := range ggufExperts {
			if err := take(c, field, key); err != nil {
				return nil, err
			}
			if c[field] == nil {
				return nil, fmt.Errorf("%s.%s: missing", arch, key)
			}
		}
	}
	if a.Hybrid() {
		if err := g.hybridFields(a, c); err != nil {
			return nil, err
		}
	}
	scaling := map[string]any{}
	for field, key := range ggufRope {
		if err := take(scaling, field, key); err != nil {
			return nil, err
		}
	}
	kind, _ := g.Value(arch + ".rope.scaling.type")
	switch kind {
	case nil, "none":
		if f, ok := scaling["factor"].(float64); kind == nil && ok && f != 0 && f != 1 { // files from before there were types
			c["rope_scaling"] = map[string]any{"rope_type": "linear", "factor": f}
		}
	case "linear":
		c["rope_scaling"] = map[string]any{"rope_type": "linear", "factor": scaling["factor"]}
	default:
		scaling["rope_type"] = kind
		c["rope_scaling"] = scaling
	}
	if err := g.vectorSizes(a, c); err != nil {
		return nil, err
	}
	return json.Marshal(c)
}

// ggufArchitectures names those that there are GGUF files of.
func ggufArchitectures(last string) string {
	return architecture.Names(last, func(a *architecture.Architecture) string { return a.GGUF })
}

// vectorSizes adds what the tensors tell and refuses what would change the
// output unseen.
func (g *GGUF) vectorSizes(a *architecture.Architecture, c map[string]any) error {
	arch, embedding := a.GGUF, ""
	for _, p := range a.Input {
		if p.Role == architecture.Embedding {
			embedding = p.GGUF
		}
	}
	c["tie_word_embeddings"] = true
	for _, t := range g.Tensors {
		if t.Name == "rope_freqs.weight" {
			return fmt.Errorf("tensor %s: frequencies of its own, want those of rope.freq_base", t.Name)
		}
		p, _, ok := a.FromGGUF(&Config{}, t.Name) // of no layer: all of them are known
		switch {
		case !ok:
		case p.Role == architecture.Embedding:
			c["vocab_size"] = t.Shape[0]
		case p.Role == architecture.Head:
			c["tie_word_embeddings"] = false
		}
	}
	if c["vocab_size"] == nil {
		return fmt.Errorf("tensor %s is missing", embedding)
	}
	dim := c["head_dim"]
	if dim == nil {
		dim = c["hidden_size"].(float64) / c["num_attention_heads"].(float64)
	}
	whole := []string{"attention.value_length", "rope.dimension_count"}
	if a.Hybrid() {
		whole = whole[:1] // only some of a head rotates
	}
	for _, key := range whole {
		if n, ok := g.Value(arch + "." + key); ok && ggufNumberOf(n) != dim {
			return fmt.Errorf("%s.%s: found %s, want the head dimension %v", arch, key, found(n), dim)
		}
	}
	if n, ok := g.Value(arch + ".attention.sliding_window"); ok && ggufNumberOf(n) != 0 {
		return fmt.Errorf("%s.attention.sliding_window: found %s, want none: sliding-window attention is not supported", arch, found(n))
	}
	if stop := g.stopIDs(); len(stop) > 0 {
		c["eos_token_id"] = stop
	}
	if id, ok := g.tokenID("mask"); ok {
		c["mask_token_id"] = id
	}
	return nil
}

// tokenID reads tokenizer.ggml.NAME_token_id; the largest uint32 stands for
// none.
func (g *GGUF) tokenID(name string) (int64, bool) {
	value, ok := g.Value("tokenizer.ggml." + name + "_token_id")
	if !ok {
		return 0, false
	}
	n := ggufNumberOf(value)
	if math.IsNaN(n) || n < 0 || n > math.MaxInt32 {
		return 0, false
	}
	return int64(n), true
}

// ggufStops are control tokens of Qwen's vocabulary that end an answer whatever
// the file names: files name one of the two that generation_config.json has,
// and llama.cpp, too, goes by their text.
var ggufStops = []string{"<|im_end|>", "<|endoftext|>"}

// stopIDs are the ends of text, of a turn and of a message that the file
// names, then those of ggufStops that it lacks.
func (g *GGUF) stopIDs() (ids []int64) {
	for _, name := range []string{"eos", "eot", "eom"} {
		if id, ok := g.tokenID(name); ok {
			ids = append(ids, id)
		}
	}
	tokens, kinds, err := g.tokens()
	if err != nil {
		return ids
	}
	for _, text := range ggufStops {
		id := slices.Index(tokens, text)
		if id >= 0 && kinds[id] == ggufTokenControl && !slices.Contains(ids, int64(id)) {
			ids = append(ids, int64(id))
		}
	}
	return ids
}

// ggufNumberOf is a metadata value as a number; NaN where it is none.
func ggufNumberOf(value any) float64 {
	switch v := value.(type) {
	case uint8:
		return float64(v)
	case int8:
		return float64(v)
	case uint16:
		return float64(v)
	case int16:
		return float64(v)
	case uint32:
		return float64(v)
	case int32:
		return float64(v)
	case uint64:
		return float64(v)
	case int64:
		return float64(v)
	case float32:
		return float64(v)
	case float64:
		return v
	}
	return math.NaN()
}
