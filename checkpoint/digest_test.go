package checkpoint_test

import (
	"bytes"
	"maps"
	"testing"

	"windrow/checkpoint"
	"windrow/models/tinygsm"
)

// TestDigest: any file and the bytes of any weight make another digest; the same files
// do not.
func TestDigest(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	digest := func(change func(files map[string][]byte)) string {
		files := maps.Clone(tinygsm.Files())
		change(files)
		c, err := checkpoint.New(files)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.Digest()
	}
	first := digest(func(map[string][]byte) {})
	if len(first) != 32 || digest(func(map[string][]byte) {}) != first {
		t.Errorf("%q, and then another", first)
	}
	for name := range tinygsm.Files() {
		if name == "model.safetensors.index.json" { // says in which file a weight is
			continue
		}
		changed := digest(func(files map[string][]byte) {
			if data := files[name]; bytes.HasSuffix([]byte(name), []byte(".safetensors")) {
				data = bytes.Clone(data)
				data[len(data)-1] ^= 1
				files[name] = data
			} else {
				files[name] = append(bytes.Clone(data), '\n')
			}
		})
		if changed == first {
			t.Errorf("%s changes nothing", name)
		}
	}
}
