//go:build windrow_nomodel

package tinygsm

// Available tells whether the model was built in.
const Available = false

// Files returns the model's Hugging Face files by name: none in this build.
func Files() map[string][]byte { return map[string][]byte{} }
