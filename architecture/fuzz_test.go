package architecture

import "testing"

// FuzzNames: a name that is found is that of the tensor, and a GGUF name leads
// to a tensor that has it.
func FuzzNames(f *testing.F) {
	a, c := hybrid(), small("hybrid")
	for _, p := range a.Tensors(c) {
		f.Add(p.Name)
		f.Add(p.GGUF)
	}
	for _, a := range []*Architecture{qwen3Next, qwen35, qwen35MoE} {
		for _, p := range a.Tensors(mixed(a)) {
			f.Add(p.Name)
			f.Add(p.GGUF)
		}
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, a := range append(All(), a) {
			c := c
			if a.Defaults.Interval > 0 {
				c = mixed(a)
			}
			if p, ok := a.Find(c, name); ok && p.Name != name {
				t.Fatalf("%s: %q was found as %q", a.Name, name, p.Name)
			}
			_, translated, ok := a.FromGGUF(c, name)
			if !ok {
				continue
			}
			if p, ok := a.Find(c, translated); ok && p.GGUF != name {
				t.Fatalf("%s: gguf %q is %q, which is %q there", a.Name, name, translated, p.GGUF)
			}
		}
	})
}
