package model

import (
	"fmt"
	"slices"
	"strings"

	"windrow/architecture"
	"windrow/checkpoint"
	"windrow/quant"
)

// Unused lists the tensors of a source that nothing of the model reads, and that are not
// known to be harmless. Those of layers say that the config is not theirs: a model that is
// loaded without them talks nonsense, so Load refuses them. Of others it is a guess.
func Unused(src checkpoint.Source) (layers, others []string) {
	c := src.Config()
	a := architecture.Of(c)
	for _, name := range src.Names() {
		if _, known := a.Find(c, name); known || architecture.Harmless(c, name) || strings.HasSuffix(name, ".bias") && zeros(src, name) {
			continue
		}
		if architecture.OfLayer(name) {
			layers = append(layers, name)
		} else {
			others = append(others, name)
		}
	}
	return layers, others
}

// checkUnused refuses layers' tensors that no row of the table takes.
func checkUnused(src checkpoint.Source) error {
	switch list, _ := Unused(src); len(list) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("tensor %.80q is no part of the model that the config describes", list[0])
	default:
		return fmt.Errorf("%d tensors are no part of the model that the config describes, the first is %.80q", len(list), list[0])
	}
}

// zeros reports whether a vector's elements are all 0: AutoGPTQ writes such a bias beside
// each weight.
func zeros(src checkpoint.Source, name string) bool {
	t, ok := src.Tensor(name)
	if !ok || t.Make != nil {
		return false
	}
	values, err := quant.Vector(t)
	return err == nil && !slices.ContainsFunc(values, func(v float32) bool { return v != 0 })
}
