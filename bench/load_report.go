package bench

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// measuredLevel is one repetition of a level.
type measuredLevel struct {
	clients                                 int
	rate                                    float64
	began, idle, ended                      time.Time // idle: when a client first had nothing left to ask
	answers                                 []answered
	whole                                   bool // throughput is that of the whole run
	throughput, answered, goodput           float64
	ttft50, ttft99, gap50, gap99, worstGap  float64 // milliseconds
	compared, different, cached, asked, bad int
	errors                                  map[string]int
	reason                                  string // of the first of them that has one
}

// finish makes the figures of the answers. A steady run leaves out its beginning and
// its end.
func (m *measuredLevel) finish(l *Load, steady bool) {
	m.asked, m.errors = len(m.answers), map[string]int{}
	from, to := m.began, m.ended
	if m.whole = !steady || m.idle.IsZero(); !m.whole {
		from, to = m.began.Add(m.ended.Sub(m.began)/10), m.idle
	}
	var ttft, gaps []float64
	tokens, good := 0.0, 0
	for i := range m.answers {
		a := &m.answers[i]
		if e := a.error(); e != "" {
			m.errors[e]++
			m.bad++
			if m.reason == "" {
				m.reason = a.reason
			}
		}
		tokens += a.tokensBetween(from, to)
		m.cached += a.cached
		if a.first.IsZero() {
			continue
		}
		first, mean := a.first.Sub(a.sent), time.Duration(0)
		ttft = append(ttft, milliseconds(first))
		if a.tokens > 1 {
			mean = a.last.Sub(a.first) / time.Duration(a.tokens-1)
			gaps = append(gaps, milliseconds(mean))
		}
		m.worstGap = max(m.worstGap, milliseconds(a.gap))
		if a.ok() && first <= l.GoodTTFT && mean <= l.GoodGap {
			good++
		}
	}
	if seconds := to.Sub(from).Seconds(); seconds > 0 {
		m.throughput = tokens / seconds
	}
	if seconds := m.ended.Sub(m.began).Seconds(); seconds > 0 {
		m.answered, m.goodput = float64(m.asked-m.bad)/seconds, float64(good)/seconds
	}
	m.ttft50, m.ttft99, m.gap50, m.gap99 = quantile(ttft, 0.5), quantile(ttft, 0.99), quantile(gaps, 0.5), quantile(gaps, 0.99)
	m.answers = nil // texts need not be kept
}

// tokensBetween is how many of an answer's tokens came between two times. A chunk has
// as many as its bytes are of the text: a step may bring several.
func (a *answered) tokensBetween(from, to time.Time) float64 {
	all, in := 0, 0
	for _, p := range a.pieces {
		all += p.bytes
		if !p.at.Before(from) && !p.at.After(to) {
			in += p.bytes
		}
	}
	if all == 0 {
		return 0
	}
	return float64(a.tokens) * float64(in) / float64(all)
}

// quantile is the least value that is not below a part q of the values; 0 of none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return v[min(len(v)-1, max(0, int(math.Ceil(q*float64(len(v))))-1))]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// LoadReport is the object that bench serve --json prints.
type LoadReport struct {
	Model  string `json:"model,omitempty"`
	URL    string `json:"url"`
	Mode   string `json:"mode,omitempty"`
	Draft  string `json:"draft,omitempty"`
	Window int    `json:"window,omitempty"`
	// Questions is how many were asked in turn; 0: random prompts of Prompt tokens.
	Questions int `json:"questions,omitempty"`
	Prompt    int `json:"prompt_tokens,omitempty"`
	// Shared is how many tokens the prompts began with alike. Schema: answers were held to
	// one. SwapEvery is after how many requests another model was asked for.
	Shared      int         `json:"shared_tokens,omitempty"`
	Schema      bool        `json:"schema,omitempty"`
	SwapEvery   int         `json:"swap_every,omitempty"`
	Tokens      int         `json:"generated_tokens"`
	Repetitions int         `json:"repetitions"`
	Levels      []LoadLevel `json:"levels"`
}

// LoadLevel is what was measured of a level: medians of the repetitions, with their
// extremes. Counts are sums.
type LoadLevel struct {
	Name     string `json:"name"`
	Clients  int    `json:"clients,omitempty"`
	Requests int    `json:"requests"`
	// WholeRun says that the throughput has the run's beginning and end in it.
	WholeRun bool `json:"whole_run"`
	// Throughput is in generated tokens, Answered and Goodput in requests a second.
	Throughput Spread `json:"tokens_per_second"`
	Answered   Spread `json:"requests_per_second"`
	Goodput    Spread `json:"goodput"`
	// Times are in milliseconds.
	TTFT50   Spread `json:"ttft_ms_p50"`
	TTFT99   Spread `json:"ttft_ms_p99"`
	Gap50    Spread `json:"inter_token_ms_p50"`
	Gap99    Spread `json:"inter_token_ms_p99"`
	WorstGap Spread `json:"largest_gap_ms"`
	// Compared is how many texts were compared with what one client alone got.
	Compared  int            `json:"texts_compared"`
	Different int            `json:"texts_different"`
	Cached    int            `json:"cached_tokens"`
	Errors    map[string]int `json:"errors"`
	// Reason is what the server, or the system, said of the first of them.
	Reason string `json:"reason,omitempty"`
}

func newLoadLevel(name string, runs []measuredLevel) LoadLevel {
	y := LoadLevel{Name: name, Errors: map[string]int{}}
	take := func(get func(*measuredLevel) float64) Spread {
		var values []float64
		for i := range runs {
			values = append(values, get(&runs[i]))
		}
		return newSpread(values)
	}
	for _, m := range runs {
		y.Clients, y.WholeRun = m.clients, m.whole
		y.Requests += m.asked
		y.Compared += m.compared
		y.Different += m.different
		y.Cached += m.cached
		for e, n := range m.errors {
			y.Errors[e] += n
		}
		if y.Reason == "" {
			y.Reason = m.reason
		}
	}
	y.Throughput = take(func(m *measuredLevel) float64 { return m.throughput })
	y.Answered = take(func(m *measuredLevel) float64 { return m.answered })
	y.Goodput = take(func(m *measuredLevel) float64 { return m.goodput })
	y.TTFT50 = take(func(m *measuredLevel) float64 { return m.ttft50 })
	y.TTFT99 = take(func(m *measuredLevel) float64 { return m.ttft99 })
	y.Gap50 = take(func(m *measuredLevel) float64 { return m.gap50 })
	y.Gap99 = take(func(m *measuredLevel) float64 { return m.gap99 })
	y.WorstGap = take(func(m *measuredLevel) float64 { return m.worstGap })
	return y
}

// Failed is how many requests were not answered as they should be.
func (r *LoadReport) Failed() (n int) {
	for _, l := range r.Levels {
		for _, count := range l.Errors {
			n += count
		}
	}
	return n
}

// Reason is what the server, or the system, said of the first of them; "": nothing.
func (r *LoadReport) Reason() string {
	for _, l := range r.Levels {
		if l.Reason != "" {
			return l.Reason
		}
	}
	return ""
}

// Different is how many texts were not what one client alone got.
func (r *LoadReport) Different() (n int) {
	for _, l := range r.Levels {
		n += l.Different
	}
	return n
}

// Table prints the report for people.
func (r *LoadReport) Table(out io.Writer) error {
	name, mode := r.Model, ""
	if name != "" {
		name += " at "
	}
	if r.Mode != "" {
		mode = ", mode " + r.Mode
	}
	if r.Draft != "" {
		mode += ", draft " + r.Draft
	}
	if r.Window > 0 {
		mode += fmt.Sprintf(", window %d", r.Window)
	}
	sizes := fmt.Sprintf("%d tokens in, %d out", r.Prompt, r.Tokens)
	if r.Questions > 0 {
		sizes = fmt.Sprintf("%d questions, answers of up to %d tokens", r.Questions, r.Tokens)
	}
	if r.Shared > 0 {
		sizes += fmt.Sprintf(", %d of the prompt shared", r.Shared)
	}
	if r.Schema {
		sizes += ", held to a schema"
	}
	if r.SwapEvery > 0 {
		sizes += fmt.Sprintf(", another model every %d requests", r.SwapEvery)
	}
	fmt.Fprintf(out, "%s%s: %s%s; median of %d (least–largest)\n\n", name, r.URL, sizes, mode, r.Repetitions)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "\ttokens/s\tTTFT p50, ms\tp99\ttoken p50, ms\tp99\tlargest gap, ms\tgood/s\trequests\terrors\ttexts")
	for _, l := range r.Levels {
		mark, texts := "", "–"
		if l.WholeRun {
			mark = " *"
		}
		if l.Compared > 0 {
			texts = fmt.Sprintf("%d of %d equal", l.Compared-l.Different, l.Compared)
		}
		fmt.Fprintf(w, "%s\t%s%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", l.Name, l.Throughput, mark, l.TTFT50, l.TTFT99, l.Gap50, l.Gap99, l.WorstGap, l.Goodput, l.Requests, l.errorText(), texts)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if slices.ContainsFunc(r.Levels, func(l LoadLevel) bool { return l.WholeRun }) {
		fmt.Fprintln(out, "\n* of the whole run, its beginning and its end")
	}
	for _, l := range r.Levels {
		if l.Cached > 0 {
			fmt.Fprintf(out, "%s: the server found %d tokens of prompts in its cache\n", l.Name, l.Cached)
		}
	}
	return nil
}

// errorText is how often what went wrong.
func (l *LoadLevel) errorText() string {
	if len(l.Errors) == 0 {
		return "–"
	}
	var list []string
	for _, e := range slices.Sorted(maps.Keys(l.Errors)) {
		list = append(list, fmt.Sprintf("%d %s", l.Errors[e], e))
	}
	return strings.Join(list, ", ")
}
