package convert

import (
	"fmt"
	"regexp"
	"strings"

	"windrow/architecture"
)

// Policy says which weights of a model are quantised, and how.
type Policy struct {
	// Bits is 4 or 8, Group 32, 64 or 128: affine groups as MLX writes them.
	Bits  int `json:"bits"`
	Group int `json:"group"`
	// Selective keeps the embedding and the head in bf16; otherwise they are
	// quantised like the linear layers. Norms and biases always stay.
	Selective bool `json:"selective"`
	// Experts is the Bits of a mixture's experts, which are most of its weights and of
	// which a token reads few: 4, 8, or 16, which keeps them; 0: Bits.
	Experts int `json:"experts,omitempty"`
	// Include and Exclude are patterns of module names that are quantised, or
	// kept, whatever Selective says; Exclude wins.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	// Widths gives modules that match a pattern bits of their own; the last
	// match counts.
	Widths []Width `json:"widths,omitempty"`
}

// Width gives the modules that match Pattern Bits bits: 4, 8, or 16, which
// keeps them.
type Width struct {
	Pattern string `json:"pattern"`
	Bits    int    `json:"bits"`
}

// DefaultPolicy is 4 bits in groups of 64, selective.
func DefaultPolicy() Policy { return Policy{Bits: 4, Group: 64, Selective: true} }

// ParseWidth reads PATTERN=BITS.
func ParseWidth(s string) (Width, error) {
	pattern, bits, ok := strings.Cut(s, "=")
	w := Width{Pattern: pattern}
	switch bits {
	case "4", "8":
		w.Bits = int(bits[0] - '0')
	case "16":
		w.Bits = 16
	default:
		ok = false
	}
	if !ok || pattern == "" {
		return Width{}, fmt.Errorf("width %.60q: want PATTERN=4, =8 or =16", s)
	}
	return w, nil
}

// Name is the policy in short, for tables: "4-bit selective g64".
func (p Policy) Name() string {
	which := "all"
	if p.Selective {
		which = "selective"
	}
	name := fmt.Sprintf("%d-bit %s g%d", p.Bits, which, p.Group)
	if p.Experts != 0 && p.Experts != p.Bits {
		name += fmt.Sprintf(", experts %d-bit", p.Experts)
	}
	if len(p.Include)+len(p.Exclude)+len(p.Widths) > 0 {
		name += " +patterns"
	}
	return name
}

// Rules is a policy that has been checked.
type Rules struct {
	policy           Policy
	include, exclude []*regexp.Regexp
	widths           []*regexp.Regexp
}

// Rules checks the policy and makes it ready for use.
func (p Policy) Rules() (*Rules, error) {
	if p.Bits != 4 && p.Bits != 8 {
		return nil, fmt.Errorf("quantisation to %d bits: want 4 or 8", p.Bits)
	}
	if p.Group != 32 && p.Group != 64 && p.Group != 128 {
		return nil, fmt.Errorf("quantisation in groups of %d: want 32, 64 or 128", p.Group)
	}
	if p.Experts != 0 && p.Experts != 4 && p.Experts != 8 && p.Experts != 16 {
		return nil, fmt.Errorf("quantisation of experts to %d bits: want 4, 8 or 16", p.Experts)
	}
	r := &Rules{policy: p}
	var err error
	if r.include, err = compilePatterns(p.Include); err != nil {
		return nil, err
	}
	if r.exclude, err = compilePatterns(p.Exclude); err != nil {
		return nil, err
	}
	patterns := make([]string, len(p.Widths))
	for i, w := range p.Widths {
		if w.Bits != 4 && w.Bits != 8 && w.Bits != 16 {
			return nil, fmt.Errorf("pattern %.60q: %d bits, want 4, 8 or 16", w.Pattern, w.Bits)
		}
		patterns[i] = w.Pattern
	}
	r.widths, err = compilePatterns(patterns)
	return r, err
}

// Bits says how a matrix [out, in] of a module, such as
// "model.layers.0.mlp.down_proj", is stored: in 4 or 8 bits, or in 16 with the
// reason why it is kept. class is the one that the architecture's table has it in.
func (r *Rules) Bits(module string, class architecture.Class, in int) (bits int, reason string) {
	bits = r.policy.Bits
	if class == architecture.ClassExpert && r.policy.Experts != 0 {
		bits = r.policy.Experts
	}
	for i, w := range r.policy.Widths {
		if r.widths[i].MatchString(module) {
			bits = w.Bits
		}
	}
	included := matchesAny(r.include, module)
	switch {
	case !class.Quantizable():
		return 16, "never quantised"
	case matchesAny(r.exclude, module):
		return 16, "excluded"
	case bits == 16:
		return 16, "16 bits asked for"
	case r.policy.Selective && !included && keptBySelection(class):
		return 16, "selective"
	case in%r.policy.Group != 0:
		return 16, fmt.Sprintf("rows of %d are no multiple of %d", in, r.policy.Group)
	}
	return bits, ""
}

// keptBySelection names what the selective policy keeps: quantising the head
// or the embedding costs most accuracy for its bytes.
func keptBySelection(class architecture.Class) bool {
	return class == architecture.ClassHead || class == architecture.ClassEmbedding
}

// compilePatterns turns patterns into expressions: one or more whole
// components of a dotted name, where * stands for any characters.
// "down_proj" and "layers.0" match, as does "layers.1*.mlp.*".
func compilePatterns(patterns []string) ([]*regexp.Regexp, error) {
	var list []*regexp.Regexp
	for _, p := range patterns {
		trimmed := strings.TrimSuffix(p, ".weight")
		if trimmed == "" || len(p) > 256 || strings.ContainsAny(p, " \t\r\n,") {
			return nil, fmt.Errorf("pattern %.60q: want part of a tensor's name, such as down_proj, layers.0 or layers.*.mlp", p)
		}
		quoted := strings.ReplaceAll(regexp.QuoteMeta(trimmed), `\*`, `.*`)
		re, err := regexp.Compile(`(?:^|\.)` + quoted + `(?:\.|$)`)
		if err != nil {
			return nil, fmt.Errorf("pattern %.60q: %w", p, err)
		}
		list = append(list, re)
	}
	return list, nil
}

func matchesAny(list []*regexp.Regexp, module string) bool {
	for _, re := range list {
		if re.MatchString(module) {
			return true
		}
	}
	return false
}
