//go:build !windrow_nomodel

package tinygsm

import _ "embed"

// Available reports whether the model was built in.
const Available = true

// A []byte each, not an embed.FS: reading from an FS copies the weights.
var (
	//go:embed config.json
	config []byte
	//go:embed generation_config.json
	generationConfig []byte
	//go:embed model.safetensors.index.json
	index []byte
	//go:embed model-00001-of-00002.safetensors
	shard1 []byte
	//go:embed model-00002-of-00002.safetensors
	shard2 []byte
	//go:embed tokenizer.json
	tokenizer []byte
	//go:embed tokenizer_config.json
	tokenizerConfig []byte
)

// Files returns the model's Hugging Face files by name, as they lie in the
// binary: nothing is copied, and nothing may be changed.
func Files() map[string][]byte {
	return map[string][]byte{
		"config.json":                      config,
		"generation_config.json":           generationConfig,
		"model.safetensors.index.json":     index,
		"model-00001-of-00002.safetensors": shard1,
		"model-00002-of-00002.safetensors": shard2,
		"tokenizer.json":                   tokenizer,
		"tokenizer_config.json":            tokenizerConfig,
	}
}
