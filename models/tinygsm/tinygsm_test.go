package tinygsm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestFilesAreTheFolder(t *testing.T) {
	files := Files()
	if !Available {
		if len(files) != 0 {
			t.Fatalf("%d files in a build without the model", len(files))
		}
		return
	}
	for _, pattern := range []string{"*.json", "*.safetensors"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("glob %s: %v %v", pattern, names, err)
		}
		for _, name := range names {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(files[name])) != info.Size() {
				t.Errorf("%s: %d bytes embedded, %d on disk", name, len(files[name]), info.Size())
			}
		}
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(files["model.safetensors.index.json"], &index); err != nil {
		t.Fatal(err)
	}
	for tensor, shard := range index.WeightMap {
		if files[shard] == nil {
			t.Errorf("%s lies in %s, which is not embedded", tensor, shard)
		}
	}
}

func TestFilesAreNotCopied(t *testing.T) {
	if !Available {
		t.Skip("built without the model")
	}
	const shard = "model-00001-of-00002.safetensors"
	first, second := Files()[shard], Files()[shard]
	if &first[0] != &second[0] {
		t.Error("two calls of Files gave two copies of a shard")
	}
}
