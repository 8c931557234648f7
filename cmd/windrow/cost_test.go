package main

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"windrow/backend"
	"windrow/decoder"
	"windrow/models/tinygsm"
)

func testCost(t *testing.T) *decoder.CostModel {
	t.Helper()
	c, err := decoder.NewCostModel([]decoder.CostPoint{{Rows: 1, Seconds: .001}, {Rows: 16, Seconds: .00123456789}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCostCache(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "not", "there")
	t.Setenv(cacheVariable, folder)
	c := testCost(t)
	if readCost("key") != nil {
		t.Fatal("a cost out of nowhere")
	}
	writeCost("key", c)
	if got := readCost("key"); got == nil || !reflect.DeepEqual(got.Points(), c.Points()) {
		t.Fatalf("read back %v, want %v", got, c.Points())
	}
	if readCost("other key") != nil {
		t.Error("found under another key")
	}
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != 1 || !strings.HasPrefix(files[0].Name(), "cost-") || filepath.Ext(files[0].Name()) != ".json" {
		t.Fatalf("the cache holds %v (%v), want one cost-*.json", files, err)
	}
	path := filepath.Join(folder, files[0].Name())
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty":          "",
		"cut":            string(whole[:len(whole)/2]),
		"other key":      strings.Replace(string(whole), `"key": "key"`, `"key": "yek"`, 1),
		"no points":      `{"key": "key"}`,
		"one point":      `{"key": "key", "points": [{"rows": 1, "seconds": 1}]}`,
		"negative":       `{"key": "key", "points": [{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": -1}]}`,
		"not from one":   `{"key": "key", "points": [{"rows": 2, "seconds": 1}, {"rows": 3, "seconds": 1}]}`,
		"wrong type":     `{"key": "key", "points": [{"rows": "1", "seconds": 1}]}`,
		"larger than it": string(whole) + strings.Repeat(" ", maxCacheFile) + "!",
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := readCost("key"); (got != nil) != (name == "larger than it") {
			t.Errorf("%s: read %v", name, got)
		}
		writeCost("key", c)
		if readCost("key") == nil {
			t.Errorf("%s: not replaced", name)
		}
	}
}

func TestCostCacheNowhere(t *testing.T) {
	t.Setenv(cacheVariable, "off")
	writeCost("key", testCost(t))
	if readCost("key") != nil || costPath("key") != "" {
		t.Error("off still caches")
	}
	// A folder that cannot be made is no error.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(cacheVariable, file)
	writeCost("key", testCost(t))
	if readCost("key") != nil {
		t.Error("read from under a file")
	}
}

func FuzzParseCost(f *testing.F) {
	f.Add([]byte(`{"key": "key", "points": [{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": 1.5}]}`))
	f.Add([]byte(`{"key": "key", "points": [{"rows": 1, "seconds": 1e-300}, {"rows": 9000000000000000000, "seconds": 1e308}]}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c := parseCost(b, "key"); c != nil {
			for _, rows := range []int{1, 2, 17, 64} {
				if s := c.Seconds(rows); !(s > 0) {
					t.Fatalf("%d rows take %v s", rows, s)
				}
			}
		}
	})
}

// TestMeasureCost: all points of a small model within the time, one of one row
// and one more even where there is no time, the cached ones the second time.
func TestMeasureCost(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	t.Setenv(cacheVariable, t.TempDir())
	e, err := openModel(t.Context(), "", machineOptions{kv: backend.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	c, err := measureCost(t.Context(), e, 0)
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Points(); len(p) != 2 || p[0].Rows != 1 || p[1].Rows != 16 {
		t.Errorf("without time: %v", p)
	}
	if c = e.cost(t.Context(), e.checkpoint); c == nil || len(c.Points()) < 2 {
		t.Fatalf("measured %v", c)
	}
	if again := e.cost(t.Context(), e.checkpoint); again == nil || !reflect.DeepEqual(again.Points(), c.Points()) {
		t.Errorf("the second time %v, want the cached %v", again, c.Points())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := measureCost(ctx, e, time.Second); err == nil {
		t.Errorf("cancelled, yet %v", c)
	}
	other := *e
	other.machine.kv = backend.KVInt8
	if costKey(e, e.checkpoint) == costKey(&other, e.checkpoint) {
		t.Error("the key leaves out the dtype of keys and values")
	}
}

func TestWindowChoice(t *testing.T) {
	for _, test := range []struct {
		w           windowChoice
		mode        decoder.Mode
		temperature float32
		want        bool
	}{
		{windowChoice{}, decoder.Verified, 0, true},
		{windowChoice{}, decoder.Verified, 1, false},
		{windowChoice{given: true, auto: true}, decoder.Verified, 1, true},
		{windowChoice{}, decoder.WeDLM, 0, false},
		{windowChoice{}, decoder.AR, 0, false},
		{windowChoice{given: true, auto: true}, decoder.WeDLM, 0, true},
		{windowChoice{given: true, auto: true}, decoder.AR, 0, false},
		{windowChoice{given: true}, decoder.Verified, 0, false},
	} {
		o := decoder.Options{Mode: test.mode, Sampling: decoder.Sampling{Temperature: test.temperature}}
		if got := test.w.adaptive(o); got != test.want {
			t.Errorf("%+v in %s at temperature %v: adaptive %t", test.w, test.mode, test.temperature, got)
		}
	}
}
