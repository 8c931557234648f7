package main

import (
	"encoding/json"

	"windrow/cpu"
)

// verdictFile says which of two ways was measured to be faster. The key is
// there in full, as in costFile.
type verdictFile struct {
	Key    string `json:"key"`
	Faster *bool  `json:"faster"`
}

// verdictCache keeps cpu's verdicts in the cache folder, by version and platform.
type verdictCache struct{}

var _ cpu.Verdicts = verdictCache{}

func (verdictCache) Read(key string) (faster, known bool) {
	key = versionLine() + " " + key
	var file verdictFile
	if json.Unmarshal(readCache(cachePath("verdict", key)), &file) != nil || file.Key != key || file.Faster == nil {
		return false, false
	}
	return *file.Faster, true
}

func (verdictCache) Write(key string, faster bool) {
	key = versionLine() + " " + key
	writeCache(cachePath("verdict", key), verdictFile{key, &faster})
}
