package convert

import (
	"testing"

	"windrow/architecture"
	"windrow/checkpoint"
)

// TestSensitivity: a tied head and the embedding are one class, else two;
// each class quantises its own matrices only.
func TestSensitivity(t *testing.T) {
	forms := func(c *checkpoint.Config) []Named { return Sensitivity(Policy{Bits: 8, Group: 32, Selective: true}, c) }
	if tied, apart := len(forms(&checkpoint.Config{TieEmbeddings: true})), len(forms(&checkpoint.Config{})); tied != 8 || apart != 9 {
		t.Errorf("%d classes with a tied head, %d without, want 8 and 9", tied, apart)
	}
	for _, f := range forms(&checkpoint.Config{}) {
		rules, err := f.Policy.Rules()
		if err != nil {
			t.Fatal(err)
		}
		for _, class := range layerClasses {
			want := 16
			if class.module == f.Module {
				want = 8
			}
			if bits, _ := rules.Bits("model.layers.3.mlp."+class.module, architecture.ClassProjection, 64); bits != want {
				t.Errorf("%s: %s in %d bits, want %d", f.Name, class.module, bits, want)
			}
		}
	}
}
