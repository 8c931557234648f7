package convert

import (
	"strings"

	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
)

// planStack decides on the matrices of all experts in one tensor [experts, out, in].
// What is quantised is written under MLX's names, with gates and ups apart; what is
// kept stays as it is.
func planStack(t backend.Tensor, p architecture.Tensor, rules *Rules) []*quantizeStep {
	experts, out, in := t.Shape[0], t.Shape[1], t.Shape[2]
	names := []string{t.Name}
	if base, fused := strings.CutSuffix(t.Name, "experts.gate_up_proj"); fused {
		names = []string{base + "switch_mlp.gate_proj.weight", base + "switch_mlp.up_proj.weight"}
	} else if base, fused := strings.CutSuffix(t.Name, "experts.down_proj"); fused {
		names = []string{base + "switch_mlp.down_proj.weight"}
	}
	each := out / len(names)
	var steps []*quantizeStep
	var kept []string
	for i, name := range names {
		s := &quantizeStep{source: t, name: name, shape: []int{experts, each, in}, module: strings.TrimSuffix(name, ".weight"),
			out: experts * each, in: in, float: backend.BF16, each: each, per: out, first: i * each, expert: true}
		var bits int
		if bits, s.reason = rules.Bits(s.module, p.Class, in); bits == 16 {
			kept = append(kept, s.reason)
		} else {
			s.format = checkpoint.AffineFormat{Bits: bits, Group: rules.policy.Group}
		}
		steps = append(steps, s)
	}
	if len(kept) < len(names) {
		return steps
	}
	rows := experts * out
	return []*quantizeStep{{source: t, name: t.Name, shape: t.Shape, module: strings.TrimSuffix(t.Name, ".weight"),
		out: rows, in: in, float: backend.BF16, reason: kept[0], each: rows, per: rows, expert: true}}
}
