package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"windrow/decoder"
	"windrow/schedule"
)

// metrics are what /metrics shows, under the names that vLLM's have after its prefix.
// Labels are bounded: none is a client's text.
type metrics struct {
	handler  http.Handler
	only     string                 // the one model's name, "" where there are several
	replies  *prometheus.CounterVec // by route and status
	finished *prometheus.CounterVec
	failed   *prometheus.CounterVec

	firstToken, betweenTokens, whole, queued, prefill, decode *prometheus.HistogramVec
}

// modelLabel is the label of a model's name.
const modelLabel = "model_name"

// collector shows what schedulers count, of all models.
type collector struct {
	pool    *Pool
	figures []figure
	// drafts count by who drafted: another label than the figures have.
	drafts [2]*prometheus.Desc
}

// figure is something that a scheduler counts.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(schedule.State) float64
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range c.figures {
		out <- f.desc
	}
	for _, d := range c.drafts {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, m := range c.pool.Standings() {
		for _, f := range c.figures {
			out <- prometheus.MustNewConstMetric(f.desc, f.kind, f.get(m.State), m.Source.Name)
		}
		m.State.Drafters.Each(func(kind decoder.DrafterKind, x decoder.DrafterStats) {
			for i, n := range []int{x.Drafts, x.Accepted} {
				out <- prometheus.MustNewConstMetric(c.drafts[i], prometheus.CounterValue, float64(n), m.Source.Name, kind.String())
			}
		})
	}
}

const metricsPrefix = "windrow"

// newMetrics registers what is measured of models.
func newMetrics(p *Pool) *metrics {
	registry := prometheus.NewRegistry()
	// What the process holds, under the names that all programs have.
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	all := &collector{pool: p}
	for i, x := range [][2]string{{"drafts_by_total", "Drafts that were checked, by who proposed them."}, {"drafts_accepted_by_total", "Drafts that stood, by who proposed them."}} {
		all.drafts[i] = prometheus.NewDesc(prometheus.BuildFQName(metricsPrefix, "", x[0]), x[1], []string{modelLabel, "drafter"}, nil)
	}
	figureOf := func(kind prometheus.ValueType) func(name, help string, get func(schedule.State) float64) {
		return func(name, help string, get func(schedule.State) float64) {
			full := prometheus.BuildFQName(metricsPrefix, "", name)
			all.figures = append(all.figures, figure{prometheus.NewDesc(full, help, []string{modelLabel}, nil), kind, get})
		}
	}
	counter, gauge := figureOf(prometheus.CounterValue), figureOf(prometheus.GaugeValue)
	vector := func(name, help string, by ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricsPrefix, Name: name, Help: help}, append([]string{modelLabel}, by...))
		registry.MustRegister(v)
		return v
	}
	histogram := func(name, help string, start float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: metricsPrefix, Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(start, 2, 16)}, []string{modelLabel})
		registry.MustRegister(h)
		for _, e := range p.entries {
			h.WithLabelValues(e.Name) // there before its first request
		}
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
	counter("sealed_tokens_total", "Tokens of prompts that were computed while nobody waited.", func(s schedule.State) float64 { return float64(s.SealedTokens) })
	counter("session_saves_total", "Sessions that were saved to disk.", func(s schedule.State) float64 { return float64(s.SessionSaves) })
	counter("session_loads_total", "Beginnings of prompts that came from disk.", func(s schedule.State) float64 { return float64(s.SessionLoads) })
	counter("session_failures_total", "Sessions that could not be saved or loaded.", func(s schedule.State) float64 { return float64(s.SessionFailures) })
	registry.MustRegister(all)
	m := &metrics{
		handler:       promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		replies:       vector("http_replies_total", "Replies by route and status.", "route", "status"),
		finished:      vector("request_success_total", "Generations that ended, by why.", "finished_reason"),
		failed:        vector("request_failures_total", "Requests whose generation did not end."),
		firstToken:    histogram("time_to_first_token_seconds", "From a request's arrival to its first text.", 0.002),
		betweenTokens: histogram("inter_token_latency_seconds", "Mean time between a generation's tokens.", 0.0002),
		whole:         histogram("e2e_request_latency_seconds", "From a request's arrival to its end.", 0.01),
		queued:        histogram("request_queue_time_seconds", "From a request's arrival to its admission.", 0.0005),
		prefill:       histogram("request_prefill_time_seconds", "From admission until the prompt is done.", 0.0005),
		decode:        histogram("request_decode_time_seconds", "From the prompt's end to the end.", 0.005),
	}
	for _, e := range p.entries {
		m.failed.WithLabelValues(e.Name)
	}
	if len(p.entries) == 1 {
		m.only = p.entries[0].Name
	}
	return m
}

// serve answers GET /metrics.
func (m *metrics) serve(w http.ResponseWriter, r *http.Request) error {
	m.handler.ServeHTTP(w, r)
	return nil
}

// answered counts a reply, of a model or, for nil, of none.
func (m *metrics) answered(model *Model, route string, status int) {
	name := m.only
	if model != nil {
		name = model.Name
	}
	if route == "" {
		route = "none"
	}
	m.replies.WithLabelValues(name, route, strconv.Itoa(status)).Inc()
}

// ended counts a request's generations.
func (m *metrics) ended(g *run, err error) {
	name := g.model.Name
	if err != nil {
		m.failed.WithLabelValues(name).Inc()
		return
	}
	m.whole.WithLabelValues(name).Observe(time.Since(g.began).Seconds())
	for _, c := range g.choices {
		m.finished.WithLabelValues(name, string(c.reason)).Inc()
		m.queued.WithLabelValues(name).Observe(c.timings.Queued.Seconds())
		m.prefill.WithLabelValues(name).Observe(c.timings.Prefill.Seconds())
		m.decode.WithLabelValues(name).Observe(c.timings.Decode.Seconds())
		if c.first.IsZero() {
			continue
		}
		m.firstToken.WithLabelValues(name).Observe(c.first.Sub(g.began).Seconds())
		if c.tokens > 1 {
			m.betweenTokens.WithLabelValues(name).Observe(c.last.Sub(c.first).Seconds() / float64(c.tokens-1))
		}
	}
}
