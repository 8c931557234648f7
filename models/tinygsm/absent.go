//go:build windrow_nomodel

package tinygsm

import (
	"os"
	"path/filepath"
)

// folder is where a build without the model looks for it: tests on machines
// that a small binary is copied to set it.
var folder = os.Getenv("WINDROW_TINYGSM")

// Available reports whether the model is there.
var Available = folder != ""

// Files returns the model's Hugging Face files by name: those of the folder
// that WINDROW_TINYGSM names, or none.
func Files() map[string][]byte {
	files := map[string][]byte{}
	if !Available {
		return files
	}
	for _, name := range []string{"config.json", "generation_config.json", "model.safetensors.index.json",
		"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "tokenizer.json", "tokenizer_config.json"} {
		if data, err := os.ReadFile(filepath.Join(folder, name)); err == nil {
			files[name] = data
		}
	}
	return files
}
