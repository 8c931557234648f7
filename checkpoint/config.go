package checkpoint

import (
	"cmp"
	"fmt"
	"math"

	"windrow/architecture"
	"windrow/rope"
)

// Config is the shape of a model, as its config.json gives it.
type Config = architecture.Config

// Experts is the shape of a model's mixtures of experts.
type Experts = architecture.Experts

// Bounds on a config's sizes: about eight times the largest published dense
// models, and small enough that no product of three overflows 63 bits.
const (
	maxHiddenSize       = 1 << 17
	maxLayers           = 1024
	maxHeads            = 1024
	maxIntermediateSize = 1 << 20
	maxVocabSize        = 1 << 23
	maxTokenIDs         = 1024
)

// DefaultMaskTokenID is WeDLM's mask in Qwen's vocabularies: an id without a
// string there.
const DefaultMaskTokenID = 151665

// ParseConfig reads a config.json of one of the known architectures and checks
// every size. An error names the field, what was found
// and what is wanted.
func ParseConfig(data []byte) (*Config, error) {
	f, err := parseFields(data)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	c.Architecture = readArchitecture(f)
	if f.err != nil {
		return nil, f.err // another architecture's sizes have other names
	}
	a := architecture.Of(c)
	if a.Wrapper != "" {
		unwrap(f)
	}
	c.HiddenSize = f.integer("hidden_size", 1, maxHiddenSize, required)
	c.Layers = f.integer("num_hidden_layers", 1, maxLayers, required)
	c.Heads = f.integer("num_attention_heads", 1, maxHeads, required)
	c.KVHeads = f.integer("num_key_value_heads", 1, maxHeads, c.Heads)
	c.IntermediateSize = f.integer("intermediate_size", 1, maxIntermediateSize, impliedInner(c))
	c.VocabSize = f.integer("vocab_size", 1, maxVocabSize, required)
	c.RMSNormEps = float32(f.number("rms_norm_eps", 1e-12, 0.1, 1e-6))
	c.MaxPositions = f.integer("max_position_embeddings", 1, math.MaxInt32, 32768)
	c.TieEmbeddings = f.boolean("tie_word_embeddings", false)
	c.DType = f.text("dtype", f.text("torch_dtype", ""))
	if a.Mixture() {
		c.Experts = readExperts(c, f)
	}
	if f.err == nil && a.Hybrid() {
		readHybrid(c, f)
	}
	if f.err != nil {
		return nil, f.err
	}
	if err := checkDense(c); err != nil {
		return nil, err
	}
	if c.Heads%c.KVHeads != 0 {
		return nil, fmt.Errorf("num_key_value_heads: found %d, want a divisor of num_attention_heads %d", c.KVHeads, c.Heads)
	}
	dim := a.Defaults.HeadDim
	if dim == 0 {
		dim = c.HiddenSize / c.Heads
		if !f.has("head_dim") && c.HiddenSize%c.Heads != 0 {
			return nil, fmt.Errorf("head_dim: missing, and hidden_size %d is no multiple of num_attention_heads %d", c.HiddenSize, c.Heads)
		}
	}
	c.HeadDim = f.integer("head_dim", 2, rope.MaxHeadDim, dim)
	if f.err == nil && (c.HeadDim%2 != 0 || c.HeadDim > rope.MaxHeadDim) {
		return nil, fmt.Errorf("head_dim: found %d, want an even number from 2 to %d", c.HeadDim, rope.MaxHeadDim)
	}
	c.EOSTokenIDs = f.tokenIDs("eos_token_id", c.VocabSize)
	c.MaskTokenID = int32(f.integer("mask_token_id", 0, c.VocabSize-1, impliedMask(c)))
	refuseUnsupported(c, f)
	c.Quantization, c.Published = readQuantization(c, f)
	readRope(c, f)
	if f.err != nil {
		return nil, f.err
	}
	return c, nil
}

// readArchitecture settles on an architecture's name. Either name may be missing,
// and a WeDLM model may keep its base model's name in one of the two.
func readArchitecture(f *fields) string {
	modelType := f.text("model_type", "")
	classes := f.texts("architectures")
	if f.err != nil {
		return ""
	}
	class, byClass := "", ""
	if len(classes) > 0 {
		class = classes[0]
	}
	for _, a := range architecture.All() {
		if a.Class == class || a.WrapperClass == class && class != "" {
			byClass = a.Name
		}
		if a.Wrapper == modelType && modelType != "" {
			modelType = a.Name
		}
	}
	_, unknown := architecture.Lookup(modelType)
	switch {
	case modelType == "qwen4_exp", modelType == "qwen4_exp_text":
		f.fail("model_type: %s has hyper-connections and n-gram embeddings, which are not supported: %s", modelType, architecture.Want())
	case modelType == "" && class == "":
		f.fail("model_type: missing: unknown architecture: %s", architecture.Want())
	case modelType != "" && unknown != nil:
		f.fail("model_type: %w", unknown)
	case class != "" && byClass == "":
		f.fail("architectures: unknown architecture %.60q: want %s", class, architecture.Names(" or ", func(a *architecture.Architecture) string { return a.Class }))
	case modelType == "wedlm" || byClass == "wedlm":
		return "wedlm"
	case modelType != "" && byClass != "" && modelType != byClass:
		f.fail("architectures: found %s, want the one of model_type %q", class, modelType)
	case modelType == "":
		return byClass
	}
	return modelType
}

// impliedInner is the inner size of a config that gives none: of a mixture's it need
// not say how large its dense layers would be.
func impliedInner(c *Config) int {
	if architecture.Of(c).Mixture() {
		return 0
	}
	return required
}

// impliedMask is the mask of a config that names none.
func impliedMask(c *Config) int {
	if c.Architecture == "wedlm" && (c.VocabSize == 151936 || c.VocabSize == 152064) {
		return DefaultMaskTokenID
	}
	return -1
}

// refuseUnsupported names what would silently change the model's output.
func refuseUnsupported(c *Config, f *fields) {
	if act := f.text("hidden_act", "silu"); act != "silu" {
		f.fail("hidden_act: found %.40q, want silu", act)
	}
	if f.boolean("use_sliding_window", false) {
		f.fail("use_sliding_window: found true, want false: sliding-window attention is not supported")
	}
	if c.Delta != nil {
		return // whose layers' types were read
	}
	for _, kind := range f.texts("layer_types") {
		if kind != "full_attention" {
			f.fail("layer_types: found %.40q, want full_attention in every layer", kind)
		}
	}
}

// readRope reads rope_parameters (transformers 5), or else rope_scaling and
// rope_theta.
func readRope(c *Config, f *fields) {
	source := "rope_parameters"
	p := f.object(source)
	if p == nil {
		source = "rope_scaling"
		p = f.object(source)
	}
	if p == nil {
		p = &fields{}
	}
	unbounded := math.MaxFloat64
	theta := f.number("rope_theta", -unbounded, unbounded, 10000)
	usual := architecture.Of(c).Defaults.Rotated
	r := rope.Config{
		HeadDim:              c.HeadDim,
		Type:                 p.text("rope_type", p.text("type", rope.Default)),
		Theta:                p.number("rope_theta", -unbounded, unbounded, theta),
		Factor:               p.number("factor", -unbounded, unbounded, 0),
		OriginalMaxPositions: p.number("original_max_position_embeddings", -unbounded, unbounded, 0),
		BetaFast:             p.number("beta_fast", -unbounded, unbounded, 0),
		BetaSlow:             p.number("beta_slow", -unbounded, unbounded, 0),
		AttentionFactor:      p.number("attention_factor", -unbounded, unbounded, 0),
		Mscale:               p.number("mscale", -unbounded, unbounded, 0),
		MscaleAllDim:         p.number("mscale_all_dim", -unbounded, unbounded, 0),
		NoTruncate:           !p.boolean("truncate", true),
	}
	rotated := p.number("partial_rotary_factor", -unbounded, unbounded, f.number("partial_rotary_factor", -unbounded, unbounded, cmp.Or(usual, 1)))
	if usual != 0 && f.err == nil && p.err == nil {
		var err error
		if r.HeadDim, err = rotatedDims(c, rotated); err != nil {
			f.fail("%w", err)
			return
		}
		if p.has("mrope_section") {
			checkSections(p, r.HeadDim)
		}
	}
	if p.err != nil {
		f.fail("%s: %w", source, p.err)
	}
	if usual == 0 && rotated != 1 {
		f.fail("partial_rotary_factor: found %g, want 1: every element of a head rotates in the supported models", rotated)
	}
	if p.has("full_attention") || p.has("sliding_attention") {
		f.fail("%s: found a rotation for each layer type, want one for all layers", source)
	}
	if usual == 0 && p.has("mrope_section") { // Qwen2-VL writes it beside the type "default"
		r.Type = "mrope"
	}
	if r.Type == rope.YaRN {
		if r.OriginalMaxPositions == 0 {
			r.OriginalMaxPositions = float64(c.MaxPositions)
		}
		if r.Factor == 0 {
			r.Factor = float64(c.MaxPositions) / r.OriginalMaxPositions
		}
	}
	if f.err != nil {
		return
	}
	if _, err := rope.New(r); err != nil {
		f.fail("%s: %w", source, err)
		return
	}
	// Qwen's advice for YaRN adds rope_scaling and leaves
	// max_position_embeddings as it was.
	if stretched := r.Factor * r.OriginalMaxPositions; r.Type == rope.YaRN && stretched > float64(c.MaxPositions) {
		c.MaxPositions = int(min(stretched, math.MaxInt32))
	}
	c.Rope = r
}
