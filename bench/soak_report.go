package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SoakSample is what a server held at a time.
type SoakSample struct {
	Seconds    float64 `json:"seconds"`
	Resident   int64   `json:"resident_bytes"`
	Cached     int64   `json:"kv_cache_bytes"` // of keys and values, wherever they lie
	Goroutines int     `json:"goroutines"`
	Running    int     `json:"running"` // requests that run or wait
}

// SoakReport is the object that bench serve --soak --json prints.
type SoakReport struct {
	URL     string  `json:"url"`
	Clients int     `json:"clients"`
	Seconds float64 `json:"seconds"`
	// Requests were sent, Left of them were given up by their clients.
	Requests int `json:"requests"`
	Left     int `json:"left"`
	// Compared answers were of known questions; Different were not what they should be.
	Compared  int            `json:"texts_compared"`
	Different int            `json:"texts_different"`
	Kinds     map[string]int `json:"kinds"`
	// Faults counts what was wrong, Errors says it of the first.
	Faults int            `json:"faults"`
	Errors map[string]int `json:"errors"`

	GoroutinesBefore int          `json:"goroutines_before"`
	GoroutinesAfter  int          `json:"goroutines_after"`
	StillRunning     int          `json:"still_running"`
	Samples          []SoakSample `json:"samples"`
	// Growth is that of the resident set in MB (10⁶ bytes) an hour, from GrowthFrom
	// seconds on.
	Growth     float64 `json:"growth_mb_per_hour"`
	GrowthFrom float64 `json:"growth_from_seconds"`
	// GrowthBeside is that of the resident set less the keys and values, which on a CPU are
	// part of it: where to look. The bound is on all.
	GrowthBeside float64 `json:"growth_beside_kv_cache_mb_per_hour"`
}

// What a soak allows.
const (
	mostGrowth      = 1.0  // MB an hour
	warmUp          = 600  // seconds before growth counts; a third of shorter runs
	leastForGrowth  = 1200 // seconds that a run takes for its growth to be checked: allocators breathe
	mostMoreRoutine = 4    // goroutines of connections that are being closed
)

// sample reads a server's metrics.
func (r *soaking) sample(ctx context.Context) (s SoakSample, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/metrics", nil)
	if err != nil {
		return s, err
	}
	if r.Key != "" {
		q.Header.Set("Authorization", "Bearer "+r.Key)
	}
	w, err := r.client.Do(q)
	if err != nil {
		return s, err
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK {
		return s, statusError(w.StatusCode)
	}
	return readMetrics(w.Body)
}

// readMetrics finds the figures in the text form of Prometheus.
func readMetrics(text io.Reader) (s SoakSample, err error) {
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "process_resident_memory_bytes":
			s.Resident = int64(v)
		case "windrow_kv_cache_bytes":
			s.Cached += int64(v)
		case "go_goroutines":
			s.Goroutines = int(v)
		case "windrow_num_requests_running", "windrow_num_requests_waiting":
			s.Running += int(v)
		}
	}
	if s.Goroutines == 0 {
		return s, errors.New("no go_goroutines: is it a windrow server?")
	}
	return s, lines.Err()
}

// settled waits until nothing runs, and at most want goroutines are there, or for ten
// seconds.
func (r *soaking) settled(ctx context.Context, want int) (s SoakSample, err error) {
	for range 40 {
		if s, err = r.sample(ctx); err != nil || s.Running == 0 && s.Goroutines <= want {
			return s, err
		}
		r.client.CloseIdleConnections()
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
	return s, nil
}

// measure finds by how much memory grew.
func (r *SoakReport) measure() {
	r.GrowthFrom = min(warmUp, r.Seconds/3)
	r.Growth = growth(r.Samples, r.GrowthFrom, func(s SoakSample) int64 { return s.Resident })
	r.GrowthBeside = growth(r.Samples, r.GrowthFrom, func(s SoakSample) int64 { return s.Resident - s.Cached })
}

// growth is the slope of some bytes in MB an hour: the median of the slopes between all
// pairs (Theil–Sen) of the least of each minute, or twentieth part. One collection of
// garbage more or less does not move it.
func growth(samples []SoakSample, from float64, bytes func(SoakSample) int64) float64 {
	if len(samples) == 0 {
		return 0
	}
	span := min(60, (samples[len(samples)-1].Seconds-from)/20)
	type point struct {
		seconds float64
		bytes   int64
	}
	var points []point
	for _, s := range samples {
		if s.Seconds < from || s.Resident == 0 {
			continue
		}
		bin := int((s.Seconds - from) / max(span, 1e-9))
		if n := len(points); n > 0 && int((points[n-1].seconds-from)/max(span, 1e-9)) == bin {
			points[n-1].bytes = min(points[n-1].bytes, bytes(s))
			continue
		}
		points = append(points, point{s.Seconds, bytes(s)})
	}
	var slopes []float64
	for i, a := range points {
		for _, b := range points[i+1:] {
			slopes = append(slopes, float64(b.bytes-a.bytes)/1e6/(b.seconds-a.seconds)*3600)
		}
	}
	return newSpread(slopes).Median
}

// Check returns what broke a bound.
func (r *SoakReport) Check() error {
	switch {
	case r.Faults > 0:
		return fmt.Errorf("%d of %d requests were not answered as they should be", r.Faults, r.Requests)
	case r.StillRunning > 0:
		return fmt.Errorf("%d requests run with nobody there", r.StillRunning)
	case r.GoroutinesAfter > r.GoroutinesBefore+mostMoreRoutine:
		return fmt.Errorf("%d goroutines are left, %d were there before", r.GoroutinesAfter, r.GoroutinesBefore)
	case r.Seconds >= leastForGrowth && r.Growth >= mostGrowth:
		return fmt.Errorf("memory grew by %.2f MB an hour, %.2f of it less keys and values: want under %g", r.Growth, r.GrowthBeside, mostGrowth)
	}
	return nil
}

// Table prints the report for people.
func (r *SoakReport) Table(out io.Writer) error {
	fmt.Fprintf(out, "%d clients at %s for %.0f s: %d requests, %d given up, %d known answers of which %d differ, %d faults\n",
		r.Clients, r.URL, r.Seconds, r.Requests, r.Left, r.Compared, r.Different, r.Faults)
	for _, k := range slices.Sorted(maps.Keys(r.Kinds)) {
		fmt.Fprintf(out, "  %d %s\n", r.Kinds[k], k)
	}
	for _, e := range slices.Sorted(maps.Keys(r.Errors)) {
		fmt.Fprintf(out, "  fault, %d times: %s\n", r.Errors[e], e)
	}
	if n := len(r.Samples); n > 0 {
		first, last := r.Samples[0], r.Samples[n-1]
		fmt.Fprintf(out, "resident set %.1f MB at first, %.1f at the end; %+.2f MB an hour from %.0f s on, %+.2f less keys and values", float64(first.Resident)/1e6, float64(last.Resident)/1e6, r.Growth, r.GrowthFrom, r.GrowthBeside)
		if r.Seconds < leastForGrowth {
			fmt.Fprintf(out, " (not checked: a run of under %d s is too short)", leastForGrowth)
		}
		fmt.Fprintln(out)
	}
	_, err := fmt.Fprintf(out, "goroutines %d before, %d after\n", r.GoroutinesBefore, r.GoroutinesAfter)
	return err
}
