package main

import (
	"encoding/json"

	"windrow/decoder"
)

// costFile is a cached cost model. The key is there in full, so that a file
// tells what it is about and a collision of names is noticed.
type costFile struct {
	Key    string              `json:"key"`
	Points []decoder.CostPoint `json:"points"`
}

// costPath is where the cost of a key is kept; "" for nowhere.
func costPath(key string) string { return cachePath("cost", key) }

// readCost returns a cached cost model, nil where there is none that can be
// used: it is then measured again.
func readCost(key string) *decoder.CostModel {
	b := readCache(costPath(key))
	if b == nil {
		return nil
	}
	return parseCost(b, key)
}

func parseCost(b []byte, key string) *decoder.CostModel {
	var file costFile
	if json.Unmarshal(b, &file) != nil || file.Key != key || len(file.Points) < 2 {
		return nil
	}
	c, err := decoder.NewCostModel(file.Points)
	if err != nil {
		return nil
	}
	return c
}

// writeCost keeps a cost model.
func writeCost(key string, c *decoder.CostModel) {
	writeCache(costPath(key), costFile{key, c.Points()})
}
