package checkpoint

import (
	"fmt"

	"windrow/architecture"
)

// Bounds on mixtures of experts: several times the largest published ones.
const (
	maxExperts         = 1 << 13
	maxExpertInnerSize = 1 << 18
)

// readExperts reads the fields of a mixture of experts; nil: every layer is dense, which
// a count of 0 says where layers may be.
func readExperts(c *Config, f *fields) *Experts {
	a := architecture.Of(c)
	usual := a.Defaults.Experts
	least := 0
	if a.Defaults.EachHas {
		least = 1
	}
	// Newer versions of transformers write the count under another name.
	count := f.integer("num_experts", least, maxExperts, f.integer("num_local_experts", least, maxExperts, usual.Count))
	if local := f.integer("num_local_experts", least, maxExperts, count); f.err == nil && local != count {
		f.fail("num_local_experts: found %d, want as num_experts %d", local, count)
	}
	if count == 0 {
		return nil
	}
	e := &Experts{
		Count:       count,
		PerToken:    f.integer("num_experts_per_tok", 1, maxExperts, usual.PerToken),
		InnerSize:   f.integer("moe_intermediate_size", 1, maxExpertInnerSize, usual.InnerSize),
		Renormalise: usual.Renormalise,
		// 0 is written where there is none.
		SharedInnerSize: f.integer("shared_expert_intermediate_size", 0, maxExpertInnerSize, usual.SharedInnerSize),
		Step:            1,
	}
	if !a.Defaults.EachHas {
		e.Renormalise = f.boolean("norm_topk_prob", usual.Renormalise)
		e.Step = f.integer("decoder_sparse_step", 1, maxLayers, 1)
		e.DenseLayers = f.integers("mlp_only_layers", maxLayers)
	}
	if f.err == nil && e.PerToken > e.Count {
		f.fail("num_experts_per_tok: found %d, want at most num_experts %d", e.PerToken, e.Count)
	}
	if f.err == nil && e.SharedInnerSize > 0 && !a.Has(architecture.SharedGate) {
		f.fail("shared_expert_intermediate_size: found %d, want none: %s has no shared expert", e.SharedInnerSize, c.Architecture)
	}
	for _, layer := range e.DenseLayers {
		if layer < 0 || layer >= c.Layers {
			f.fail("mlp_only_layers: found %d, want layers from 0 to %d", layer, c.Layers-1)
		}
	}
	return e
}

// checkDense asks for the size of dense layers where there are some.
func checkDense(c *Config) error {
	if c.IntermediateSize > 0 {
		return nil
	}
	for layer := range c.Layers {
		if !c.Sparse(layer) {
			return fmt.Errorf("intermediate_size: missing, and layer %d has no experts", layer)
		}
	}
	return nil
}
