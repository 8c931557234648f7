package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"windrow/schedule"
)

// metrics are what /metrics shows, under the names that vLLM's have after its prefix.
// Labels are bounded: none is a client's text.
type metrics struct {
	handler  http.Handler
	replies  *prometheus.CounterVec // by route and status
	finished *prometheus.CounterVec
	failed   prometheus.Counter

	firstToken, betweenTokens, whole, queued, prefill, decode prometheus.Histogram
}

const metricsPrefix = "windrow"

// newMetrics registers what is measured of a model.
func newMetrics(m *Model) *metrics {
	registry := prometheus.NewRegistry()
	labels := prometheus.Labels{"model_name": m.Name}
	counter := func(name, help string, get func(schedule.State) float64) {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: metricsPrefix, Name: name, Help: help, ConstLabels: labels},
			func() float64 { return get(m.Scheduler.State()) }))
	}
	gauge := func(name, help string, get func(schedule.State) float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: metricsPrefix, Name: name, Help: help, ConstLabels: labels},
			func() float64 { return get(m.Scheduler.State()) }))
	}
	vector := func(name, help string, by ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricsPrefix, Name: name, Help: help, ConstLabels: labels}, by)
		registry.MustRegister(v)
		return v
	}
	histogram := func(name, help string, start float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: metricsPrefix, Name: name, Help: help, ConstLabels: labels,
			Buckets: prometheus.ExponentialBuckets(start, 2, 16)})
		registry.MustRegister(h)
		return h
	}
	gauge("num_requests_running", "Requests that run.", func(s schedule.State) float64 { return float64(s.Running) })
	gauge("num_requests_waiting", "Requests that wait.", func(s schedule.State) float64 { return float64(s.Waiting) })
	gauge("kv_cache_usage_perc", "Part of the memory for keys and values that is used, 0 to 1; 0 without a limit.", usedMemory)
	gauge("kv_cache_bytes", "Bytes of keys and values.", func(s schedule.State) float64 { return float64(s.MemoryUsed) })
	counter("prefix_cache_queries_total", "Tokens of prompts that were looked for among kept beginnings.", func(s schedule.State) float64 { return float64(s.PrefixQueries) })
	counter("prefix_cache_hits_total", "Tokens of prompts that were there.", func(s schedule.State) float64 { return float64(s.PrefixHits) })
	counter("prompt_tokens_total", "Tokens of prompts.", func(s schedule.State) float64 { return float64(s.PromptTokens) })
	counter("prompt_tokens_cached_total", "Tokens of prompts that were there.", func(s schedule.State) float64 { return float64(s.CachedTokens) })
	counter("generation_tokens_total", "Generated tokens.", func(s schedule.State) float64 { return float64(s.Tokens) })
	counter("num_preemptions_total", "Requests that lost their memory to others, and ran on later.", func(s schedule.State) float64 { return float64(s.Preemptions) })
	counter("forwards_total", "Forwards of the model.", func(s schedule.State) float64 { return float64(s.Forwards) })
	counter("rows_total", "Rows of steps.", func(s schedule.State) float64 { return float64(s.Rows) })
	counter("prefill_rows_total", "Rows of prompts.", func(s schedule.State) float64 { return float64(s.PrefillRows) })
	counter("drafts_total", "Drafts that were checked.", func(s schedule.State) float64 { return float64(s.Drafts) })
	counter("drafts_accepted_total", "Drafts that stood.", func(s schedule.State) float64 { return float64(s.Accepted) })
	return &metrics{
		handler:       promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		replies:       vector("http_replies_total", "Replies by route and status.", "route", "status"),
		finished:      vector("request_success_total", "Generations that ended, by why.", "finished_reason"),
		failed:        vector("request_failures_total", "Requests whose generation did not end.").WithLabelValues(),
		firstToken:    histogram("time_to_first_token_seconds", "From a request's arrival to its first text.", 0.002),
		betweenTokens: histogram("inter_token_latency_seconds", "Mean time between a generation's tokens.", 0.0002),
		whole:         histogram("e2e_request_latency_seconds", "From a request's arrival to its end.", 0.01),
		queued:        histogram("request_queue_time_seconds", "From a request's arrival to its admission.", 0.0005),
		prefill:       histogram("request_prefill_time_seconds", "From admission until the prompt is done.", 0.0005),
		decode:        histogram("request_decode_time_seconds", "From the prompt's end to the end.", 0.005),
	}
}

// serve answers GET /metrics.
func (m *metrics) serve(w http.ResponseWriter, r *http.Request) error {
	m.handler.ServeHTTP(w, r)
	return nil
}

// answered counts a reply.
func (m *metrics) answered(route string, status int) {
	if route == "" {
		route = "none"
	}
	m.replies.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// ended counts a request's generations.
func (m *metrics) ended(g *run, err error) {
	if err != nil {
		m.failed.Inc()
		return
	}
	m.whole.Observe(time.Since(g.began).Seconds())
	for _, c := range g.choices {
		m.finished.WithLabelValues(string(c.reason)).Inc()
		m.queued.Observe(c.timings.Queued.Seconds())
		m.prefill.Observe(c.timings.Prefill.Seconds())
		m.decode.Observe(c.timings.Decode.Seconds())
		if c.first.IsZero() {
			continue
		}
		m.firstToken.Observe(c.first.Sub(g.began).Seconds())
		if c.tokens > 1 {
			m.betweenTokens.Observe(c.last.Sub(c.first).Seconds() / float64(c.tokens-1))
		}
	}
}
