package convert

import (
	"slices"

	"windrow/checkpoint"
)

// Named is a policy under the name that a table shows. Module is the one that a policy
// of a single kind of layers quantises; "": the policy is for all.
type Named struct {
	Name, Module string
	Policy       Policy
}

// layerClasses are the kinds of layers that Sensitivity goes through.
var layerClasses = []kind{
	{"embed", "embed_tokens"}, {"lm_head", "lm_head"},
	{"q", "q_proj"}, {"k", "k_proj"}, {"v", "v_proj"}, {"o", "o_proj"},
	{"gate", "gate_proj"}, {"up", "up_proj"}, {"down", "down_proj"},
}

// deltaClasses are those that hybrids have besides.
var deltaClasses = []kind{{"delta in", "in_proj_*"}, {"delta out", "out_proj"}}

// kind is a kind of layers: its name, and the pattern of its modules.
type kind struct{ name, module string }

// Sensitivity lists policies that quantise one kind of a model's layers each, as p
// quantises all of them. A tied head is the embedding: the two are one kind.
func Sensitivity(p Policy, config *checkpoint.Config) (list []Named) {
	classes := layerClasses
	if config.Delta != nil {
		classes = slices.Concat(classes, deltaClasses)
	}
	for _, class := range classes {
		name := class.name
		if config.TieEmbeddings {
			switch name {
			case "embed":
				name = "embed = lm_head (tied)"
			case "lm_head":
				continue
			}
		}
		list = append(list, Named{name, class.module, Policy{Bits: p.Bits, Group: p.Group,
			Widths: []Width{{Pattern: "*", Bits: 16}, {Pattern: class.module, Bits: p.Bits}}}})
	}
	return list
}

// Comparison lists the usual policies with groups of that size: 4 bits, 4 bits with
// embedding and head kept, 8 bits.
func Comparison(group int) (list []Named) {
	for _, p := range []Policy{{Bits: 4}, {Bits: 4, Selective: true}, {Bits: 8}} {
		p.Group = group
		list = append(list, Named{p.Name(), "", p})
	}
	return list
}
