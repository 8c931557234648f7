package main

import (
	"context"
	"errors"
	"math"
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

func testCost(t *testing.T) costHistory {
	t.Helper()
	return costHistory{{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), []decoder.CostPoint{{Rows: 1, Seconds: .001}, {Rows: 16, Seconds: .00123456789}}}}
}

func TestCostCache(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "not", "there")
	t.Setenv(cacheVariable, folder)
	c := testCost(t)
	if readCost("key") != nil {
		t.Fatal("a cost out of nowhere")
	}
	writeCost("key", c)
	if got := readCost("key"); !reflect.DeepEqual(got, c) {
		t.Fatalf("read back %v, want %v", got, c)
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
	run := func(points string) string {
		return `{"key": "key", "runs": [{"time": "2026-01-02T03:04:05Z", "points": [` + points + `]}]}`
	}
	for name, content := range map[string]string{
		"empty":          "",
		"cut":            string(whole[:len(whole)/2]),
		"other key":      strings.Replace(string(whole), `"key": "key"`, `"key": "yek"`, 1),
		"no points":      `{"key": "key", "runs": [{}]}`,
		"as it once was": `{"key": "key", "points": [{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": 2}]}`,
		"one point":      run(`{"rows": 1, "seconds": 1}`),
		"negative":       run(`{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": -1}`),
		"not from one":   run(`{"rows": 2, "seconds": 1}, {"rows": 3, "seconds": 1}`),
		"wrong type":     run(`{"rows": "1", "seconds": 1}`),
		"no time":        strings.Replace(run(`{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": 1}`), "2026-", "x", 1),
		"many":           `{"key": "key", "runs": [` + strings.Repeat(`{"time": "2026-01-02T03:04:05Z", "points": [{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": 2}]},`, 10) + `]}`,
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

// TestCostIsConfirmed starts the program at some times of a machine that is
// disturbed at times: a table that was measured in a noisy minute is not kept
// for good, and measurements end.
func TestCostIsConfirmed(t *testing.T) {
	rows := []int{1, 2, 4, 8, 16, 32}
	// c(8) by minute: what a disturbance adds to it, the rest is as it is.
	seconds := func(rows int, slow, disturbed float64) float64 {
		s := .001 * slow * (1 + .05*float64(rows-1))
		if rows >= 8 {
			s *= 1 + disturbed
		}
		return s
	}
	type start struct {
		after     time.Duration // the start before
		slow      float64       // the whole machine, times
		disturbed float64
		measured  bool
		want      float64 // c(8) of the table, of which 1.35 is true
	}
	const quiet = 1.35
	for name, starts := range map[string][]start{
		"quiet": {{0, 1, 0, true, quiet}, {time.Second, 1, 0, false, quiet}, {time.Minute, 1, 0, true, quiet},
			{time.Hour, 1, 0, false, quiet}, {100 * time.Hour, 1, 0, false, quiet}},
		"a noisy minute first": {{0, 1, .7, true, quiet * 1.7}, {time.Second, 1, .7, false, quiet * 1.7}, {time.Minute, 1, 0, true, quiet},
			{time.Minute, 1, .02, true, quiet}, {time.Hour, 1, .7, false, quiet}},
		"a noisy minute second": {{0, 1, 0, true, quiet}, {time.Hour, 1, .7, true, quiet}, {time.Hour, 1, 0, true, quiet}, {time.Hour, 1, .7, false, quiet}},
		"always noisy": {{0, 1, .7, true, quiet * 1.7}, {time.Hour, 1, .3, true, quiet * 1.3}, {time.Hour, 1, .5, true, quiet * 1.3},
			{time.Hour, 1, 1, true, quiet * 1.3}, {time.Hour, 1, 2, true, quiet * 1.3}, {time.Hour, 1, 0, false, quiet * 1.3}},
		"a slower machine, the same c":   {{0, 1, 0, true, quiet}, {time.Hour, 3, 0, true, quiet}, {time.Hour, 1, 0, false, quiet}},
		"another machine after a week":   {{0, 1, .7, true, quiet * 1.7}, {time.Hour, 1, .7, true, quiet * 1.7}, {8 * 24 * time.Hour, 2, 0, true, quiet}, {time.Hour, 2, 0, true, quiet}, {time.Hour, 2, 0, false, quiet}},
		"a clock that was ahead and not": {{1000 * time.Hour, 1, .7, true, quiet * 1.7}, {-900 * time.Hour, 1, 0, true, quiet}, {time.Minute, 1, 0, true, quiet}, {time.Minute, 1, 0, false, quiet}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(cacheVariable, t.TempDir())
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			for i, s := range starts {
				now = now.Add(s.after)
				measured := false
				c := keptCost("key", now, func() (*decoder.CostModel, error) {
					measured = true
					var points []decoder.CostPoint
					for _, n := range rows {
						points = append(points, decoder.CostPoint{Rows: n, Seconds: seconds(n, s.slow, s.disturbed)})
					}
					return decoder.NewCostModel(points)
				})
				if c == nil {
					t.Fatalf("start %d: no table", i)
				}
				if got := c.Seconds(8) / c.Seconds(1); math.Abs(got-s.want) > 1e-9 || measured != s.measured {
					t.Errorf("start %d: c(8) %.3f, measured %t, want %.3f, %t", i, got, measured, s.want, s.measured)
				}
			}
		})
	}
	// What cannot be measured leaves what there is.
	t.Setenv(cacheVariable, t.TempDir())
	fails := func() (*decoder.CostModel, error) { return nil, errors.New("no") }
	h := testCost(t)
	if c := keptCost("key", h[0].Time, fails); c != nil {
		t.Errorf("a table out of nowhere: %v", c)
	}
	writeCost("key", h)
	if c := keptCost("key", h[0].Time.Add(time.Hour), fails); c == nil || !reflect.DeepEqual(c.Points(), h[0].Points) {
		t.Errorf("table %v, want the kept one", c)
	}
}

func FuzzParseCost(f *testing.F) {
	f.Add([]byte(`{"key": "key", "runs": [{"time": "2026-01-02T03:04:05Z", "points": [{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": 1.5}]}]}`))
	f.Add([]byte(`{"key": "key", "runs": [{"points": [{"rows": 1, "seconds": 1e-300}, {"rows": 9000000000000000000, "seconds": 1e308}]}]}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := parseCost(b, "key")
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		h.recent(now).due(now)
		h.confirmed()
		if c := h.table(); c != nil {
			for _, rows := range []int{1, 2, 17, 64} {
				if s := c.Seconds(rows); !(s > 0) {
					t.Fatalf("%d rows take %v s", rows, s)
				}
			}
		} else if len(h) > 0 {
			t.Fatal("no table")
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

// A measurement that was cut short does not count for the rest of a session.
func TestWindowChoiceCancelled(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	t.Setenv("WINDROW_CACHE", "off")
	e, err := openEngine(t.Context(), "", machineOptions{kv: backend.KVBF16}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w, o := &windowChoice{}, decoder.Options{Mode: decoder.Verified, Window: 5}
	if got := w.apply(ctx, e, o); got.Cost != nil || got.Window != 5 || w.measured {
		t.Errorf("cancelled: cost %v, window %d, measured %t", got.Cost, got.Window, w.measured)
	}
	if got := w.apply(t.Context(), e, o); got.Cost == nil || !w.measured {
		t.Errorf("then: cost %v, measured %t", got.Cost, w.measured)
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
		{windowChoice{}, decoder.Verified, 1, true},
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
