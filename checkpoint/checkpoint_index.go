package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ParseIndex reads a model.safetensors.index.json and returns its weight map:
// tensor name to file name. Files must be plain names, so that an index can
// point at nothing outside its folder.
func ParseIndex(data []byte) (map[string]string, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var weightMap map[string]string
	err := readObject(dec, func(key string) error {
		if key != "weight_map" {
			var skipped json.RawMessage // metadata: nothing in it is needed
			return jsonError(dec.Decode(&skipped))
		}
		weightMap = map[string]string{}
		return readObject(dec, func(tensor string) error {
			file, err := readString(dec)
			if err == nil {
				err = checkFileName(file)
			}
			if err != nil {
				return fmt.Errorf("weight_map %.80q: %w", tensor, err)
			}
			if !strings.HasSuffix(file, ".safetensors") {
				return fmt.Errorf("weight_map %.80q: found %.80q, want the name of a .safetensors file", tensor, file)
			}
			weightMap[tensor] = file
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("want nothing after the JSON object")
	}
	if len(weightMap) == 0 {
		return nil, errors.New("weight_map: missing or empty, want tensor names with their files")
	}
	return weightMap, nil
}

// checkFileName accepts the name of a file in the model's own folder.
func checkFileName(name string) error {
	switch {
	case name == "" || name == "." || name == "..", len(name) > 255,
		strings.ContainsAny(name, "/\\:\x00"): // a colon starts a drive or a stream on Windows
		return fmt.Errorf("file name %.80q: want a plain name within the model's folder", name)
	}
	return nil
}
