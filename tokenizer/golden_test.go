package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// The golden files of testdata/parity; its README says how they are made.

func readGzip(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readGoldenJSON(t testing.TB, name string, v any) {
	t.Helper()
	if err := json.Unmarshal(readGzip(t, "parity/"+name), v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// idLists reads lists of ids: uvarints, the count of each list first.
func idLists(t testing.TB, data []byte) [][]int32 {
	t.Helper()
	r := bytes.NewReader(data)
	var lists [][]int32
	for r.Len() > 0 {
		n, err := binary.ReadUvarint(r)
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]int32, n)
		for i := range ids {
			id, err := binary.ReadUvarint(r)
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = int32(id)
		}
		lists = append(lists, ids)
	}
	return lists
}

type category struct {
	Name  string   `json:"name"`
	Texts []string `json:"texts"`
}

func readCorpus(t testing.TB) []category {
	var c []category
	readGoldenJSON(t, "corpus.json.gz", &c)
	return c
}

func readFileT(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const tinyDir = "../models/tinygsm"

var loadQwen3 = sync.OnceValues(func() (*Tokenizer, error) {
	f, err := os.Open("testdata/qwen3/tokenizer.json.gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	config, err := os.ReadFile("testdata/qwen3/tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	return New(data, config)
})

// testFolder gives the files of a folder.
type testFolder string

func (d testFolder) ReadFile(name string) ([]byte, error) { return os.ReadFile(d.Path(name)) }
func (d testFolder) Path(name string) string              { return filepath.Join(string(d), name) }

var loadTiny = sync.OnceValues(func() (*Tokenizer, error) { return Load(testFolder(tinyDir)) })

func qwen3(t testing.TB) *Tokenizer { return must(t, loadQwen3) }
func tiny(t testing.TB) *Tokenizer  { return must(t, loadTiny) }

func must(t testing.TB, load func() (*Tokenizer, error)) *Tokenizer {
	t.Helper()
	tok, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// models are the tokenizers with golden files.
var models = []struct {
	name string
	load func(testing.TB) *Tokenizer
}{{"qwen3", qwen3}, {"tinygsm", tiny}}
