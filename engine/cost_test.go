package engine

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
)

func testCost(t *testing.T) costHistory {
	t.Helper()
	return costHistory{{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), []decoder.CostPoint{{Rows: 1, Seconds: .001}, {Rows: 16, Seconds: .00123456789}}}}
}

func TestCostCache(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "not", "there")
	m := Measurements{Folder: folder, Build: "build"}
	c := testCost(t)
	if m.readCost("key") != nil {
		t.Fatal("a cost out of nowhere")
	}
	m.write(costKind, "key", c)
	if got := m.readCost("key"); !reflect.DeepEqual(got, c) {
		t.Fatalf("read back %v, want %v", got, c)
	}
	if m.readCost("other key") != nil || (Measurements{folder, "other build"}).readCost("key") != nil {
		t.Error("found under another key or for another build")
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
		return `{"key": "build; key", "value": [{"time": "2026-01-02T03:04:05Z", "points": [` + points + `]}]}`
	}
	for name, content := range map[string]string{
		"empty":          "",
		"cut":            string(whole[:len(whole)/2]),
		"other key":      strings.Replace(string(whole), `"key": "build; key"`, `"key": "build; yek"`, 1),
		"no points":      `{"key": "build; key", "value": [{}]}`,
		"as it once was": `{"key": "build; key", "runs": [{"time": "2026-01-02T03:04:05Z", "points": [{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": 2}]}]}`,
		"one point":      run(`{"rows": 1, "seconds": 1}`),
		"negative":       run(`{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": -1}`),
		"not from one":   run(`{"rows": 2, "seconds": 1}, {"rows": 3, "seconds": 1}`),
		"wrong type":     run(`{"rows": "1", "seconds": 1}`),
		"no time":        strings.Replace(run(`{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": 1}`), "2026-", "x", 1),
		"many":           `{"key": "build; key", "value": [` + strings.Repeat(`{"time": "2026-01-02T03:04:05Z", "points": [{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": 2}]},`, 9) + `{"time": "2026-01-02T03:04:05Z", "points": [{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": 2}]}]}`,
		"larger than it": string(whole) + strings.Repeat(" ", maxMeasurement) + "!",
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := m.readCost("key"); (got != nil) != (name == "larger than it") {
			t.Errorf("%s: read %v", name, got)
		}
		m.write(costKind, "key", c)
		if m.readCost("key") == nil {
			t.Errorf("%s: not replaced", name)
		}
	}
}

func TestCostCacheNowhere(t *testing.T) {
	m := Measurements{Folder: NoFolder}
	m.write(costKind, "key", testCost(t))
	if path, _ := m.path(costKind, "key"); m.readCost("key") != nil || path != "" {
		t.Error("off still keeps")
	}
	// A folder that cannot be made is no error.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	m.Folder = file
	m.write(costKind, "key", testCost(t))
	if m.readCost("key") != nil {
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
			m := Measurements{Folder: t.TempDir()}
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			for i, s := range starts {
				now = now.Add(s.after)
				measured := false
				c := m.cost("key", now, func() (*decoder.CostModel, error) {
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
	m := Measurements{Folder: t.TempDir()}
	fails := func() (*decoder.CostModel, error) { return nil, errors.New("no") }
	h := testCost(t)
	if c := m.cost("key", h[0].Time, fails); c != nil {
		t.Errorf("a table out of nowhere: %v", c)
	}
	m.write(costKind, "key", h)
	if c := m.cost("key", h[0].Time.Add(time.Hour), fails); c == nil || !reflect.DeepEqual(c.Points(), h[0].Points) {
		t.Errorf("table %v, want the kept one", c)
	}
}

func FuzzParseCost(f *testing.F) {
	f.Add([]byte(`{"key": "key", "value": [{"time": "2026-01-02T03:04:05Z", "points": [{"rows": 1, "seconds": 1}, {"rows": 2, "seconds": 1.5}]}]}`))
	f.Add([]byte(`{"key": "key", "value": [{"points": [{"rows": 1, "seconds": 1e-300}, {"rows": 9000000000000000000, "seconds": 1e308}]}]}`))
	f.Add([]byte(`{"key": "key"}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h costHistory
		if !parseMeasurement(b, "key", &h) || !h.usable() {
			return
		}
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
// and one more even where there is no time, the kept ones the second time.
func TestMeasureCost(t *testing.T) {
	kept := Measurements{Folder: t.TempDir()}
	e := openTiny(t, Options{Backend: CPU, Measurements: kept})
	c, err := e.measureCost(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Points(); len(p) != 2 || p[0].Rows != 1 || p[1].Rows != 16 {
		t.Errorf("without time: %v", p)
	}
	if c = e.Cost(t.Context()); c == nil || len(c.Points()) < 2 {
		t.Fatalf("measured %v", c)
	}
	if again := openTiny(t, Options{Backend: CPU, Measurements: kept}).Cost(t.Context()); again == nil || !reflect.DeepEqual(again.Points(), c.Points()) {
		t.Errorf("the second time %v, want the kept %v", again, c.Points())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := e.measureCost(ctx, time.Second); err == nil {
		t.Errorf("cancelled, yet %v", c)
	}
	if other := openTiny(t, Options{Backend: CPU, KV: backend.KVInt8}); e.costKey() == other.costKey() {
		t.Error("the key leaves out the dtype of keys and values")
	}
}

// TestCostLetsOthersIn: forwards run while c(rows) is measured.
func TestCostLetsOthersIn(t *testing.T) {
	e := openTiny(t, Options{Backend: CPU, Measurements: Measurements{Folder: NoFolder}})
	measured := make(chan *decoder.CostModel)
	go func() { measured <- e.Cost(t.Context()) }()
	for n := 0; ; n++ {
		e.KVRoom(t.Context()) // takes a turn
		select {
		case c := <-measured:
			if c == nil || n < 10 {
				t.Errorf("cost %v, others had %d turns", c, n)
			}
			return
		default:
		}
	}
}

// A measurement that was cut short does not count for the rest of the engine's
// life.
func TestAdaptiveCancelled(t *testing.T) {
	e := openTiny(t, Options{Backend: CPU, Measurements: Measurements{Folder: NoFolder}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := decoder.Options{Mode: decoder.Verified, Window: 5}
	if got := e.Adaptive(ctx, o); got.Cost != nil || got.Window != 5 || e.rowCost.known {
		t.Errorf("cancelled: cost %v, window %d, known %t", got.Cost, got.Window, e.rowCost.known)
	}
	short, stop := context.WithTimeout(t.Context(), costTime/20)
	defer stop()
	if got := e.Adaptive(short, o); got.Cost != nil || e.rowCost.known {
		t.Errorf("cut short: cost %v, known %t", got.Cost, e.rowCost.known)
	}
	if got := e.Adaptive(t.Context(), o); got.Cost == nil || got.Window != min(adaptiveWindow, e.Features().BatchInvariantRows/2) || !e.rowCost.known {
		t.Errorf("then: cost %v, window %d, known %t", got.Cost, got.Window, e.rowCost.known)
	}
}
