package architecture

import (
	"fmt"
	"slices"
	"strings"
)

// registry lists the architectures, in the order in which errors name them.
var registry = []*Architecture{qwen3, qwen2, wedlm, qwen3MoE, qwen3Next, qwen35, qwen35MoE}

// All lists the architectures.
func All() []*Architecture { return slices.Clone(registry) }

// Lookup finds an architecture by its name; the error says which there are.
func Lookup(name string) (*Architecture, error) {
	for _, a := range registry {
		if a.Name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("unknown architecture %.60q: %s", name, Want())
}

// Of is the architecture of a config. Where its name is unknown it is one
// without parameters: no tensor is known then.
func Of(c *Config) *Architecture {
	a, err := Lookup(c.Architecture)
	if err != nil {
		return &Architecture{Name: c.Architecture}
	}
	return a
}

// Want is how errors end that refuse an architecture.
func Want() string {
	return "want " + Names(" or ", func(a *Architecture) string { return a.Name }) +
		" (text models; no images)"
}

// Names joins one name of each architecture that has it: "a, b or c", with last
// before the last one.
func Names(last string, of func(*Architecture) string) string {
	var list []string
	for _, a := range registry {
		if name := of(a); name != "" {
			list = append(list, name)
		}
	}
	n := len(list) - 1
	return strings.Join(list[:n], ", ") + last + list[n]
}
