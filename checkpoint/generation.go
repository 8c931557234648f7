package checkpoint

import "math"

// GenerationConfig is what a generation_config.json recommends. A nil field
// is not given there.
type GenerationConfig struct {
	EOSTokenIDs       []int32
	MaxNewTokens      int // 0: not given
	DoSample          *bool
	Temperature       *float32
	TopK              *int // 0: off
	TopP              *float32
	MinP              *float32
	RepetitionPenalty *float32
}

// ParseGenerationConfig reads a generation_config.json. Fields that it does
// not know are passed over.
func ParseGenerationConfig(data []byte) (*GenerationConfig, error) {
	f, err := parseFields(data)
	if err != nil {
		return nil, err
	}
	g := &GenerationConfig{
		EOSTokenIDs:       f.tokenIDs("eos_token_id", 0),
		MaxNewTokens:      f.integer("max_new_tokens", 1, math.MaxInt32, 0),
		Temperature:       f.optional("temperature", 0, 1000),
		TopP:              f.optional("top_p", 0, 1),
		MinP:              f.optional("min_p", 0, 1),
		RepetitionPenalty: f.optional("repetition_penalty", 1e-3, 1000),
	}
	if f.has("do_sample") {
		sample := f.boolean("do_sample", false)
		g.DoSample = &sample
	}
	if f.has("top_k") {
		k := f.integer("top_k", 0, math.MaxInt32, 0)
		g.TopK = &k
	}
	if f.err != nil {
		return nil, f.err
	}
	return g, nil
}

// optional reads a number; nil where it is missing.
func (f *fields) optional(name string, low, high float64) *float32 {
	if !f.has(name) {
		return nil
	}
	x := float32(f.number(name, low, high, low))
	return &x
}
