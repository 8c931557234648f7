package hub

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// small are the files beside the weights that a model is run with, or given away with.
var small = regexp.MustCompile(`^(?i:config\.json|generation_config\.json|tokenizer\.json|tokenizer_config\.json|tokenizer\.model|vocab\.json|merges\.txt|` +
	`special_tokens_map\.json|added_tokens\.json|chat_template\.(json|jinja)|readme\.md|notice(\.(md|txt))?|(un)?licen[cs]e[^/]*|use_policy\.md)$`)

// weights are the safetensors that hold the model: not the same once more in another
// naming, and no adapters to it.
func weights(p string) bool {
	return strings.HasSuffix(p, ".safetensors") && path.Base(p) == p && !strings.HasPrefix(p, "consolidated") && !strings.HasPrefix(p, "adapter")
}

// Take chooses the files of a listing that are fetched: the safetensors with what stands
// around them or, where there are none or a name asks for it, one .gguf model. Never
// programs, and no formats that can hold them.
func Take(files []File, want string) ([]File, error) {
	var paths []string
	safetensors := false
	for _, f := range files {
		paths = append(paths, f.Path)
		safetensors = safetensors || weights(f.Path)
	}
	var model []string
	if want != "" || !safetensors {
		var err error
		if model, err = PickGGUF(paths, want); err != nil {
			return nil, err
		}
	}
	var taken []File
	for _, f := range files {
		switch {
		case model == nil && (weights(f.Path) || f.Path == indexFile), slices.Contains(model, f.Path), small.MatchString(f.Path):
			taken = append(taken, f)
		}
	}
	slices.SortFunc(taken, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return taken, nil
}
