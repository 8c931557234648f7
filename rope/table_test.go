package rope

import (
	"math"
	"strings"
	"testing"
)

// The expected values come from the formulas of Hugging Face transformers'
// _compute_yarn_parameters, evaluated in Python's float64.
func TestFill(t *testing.T) {
	type value struct {
		position int32
		pair     int
		cos, sin float64
	}
	for _, tc := range []struct {
		name   string
		config Config
		want   []value
	}{
		{"default", Config{HeadDim: 128, Theta: 1e6}, []value{
			{0, 0, 1, 0}, {0, 63, 1, 0},
			{1, 0, 0.540302306, 0.841470985},
			{1, 1, 0.692503915, 0.721414117},
			{1, 32, 0.9999995, 0.000999999833},
			{1, 63, 1, 1.24093776e-06},
			{4095, 0, -0.0659759966, -0.99782121},
			{4095, 32, -0.57890813, -0.815392775},
			{40000, 1, 0.584214354, 0.811599401},
			{40000, 63, 0.998768312, 0.0496171294},
		}},
		{"linear", Config{Type: Linear, HeadDim: 128, Theta: 1e6, Factor: 4}, []value{
			{1, 0, 0.968912422, 0.247403959},
			{1, 63, 1, 3.1023444e-07},
			{4095, 1, -0.307788817, 0.951454699},
			{40000, 0, -0.952155368, -0.305614389},
			{40000, 32, -0.839071529, -0.544021111},
		}},
		{"yarn, a short original context", Config{Type: YaRN, HeadDim: 64, Theta: 1e4, Factor: 4, OriginalMaxPositions: 64}, []value{
			{1, 0, 0.61520411, 0.958123633},
			{1, 1, 0.880042687, 0.722496963},
			{63, 8, -0.574832635, 0.982875594},
			{255, 0, -0.981844271, -0.576592422},
			{255, 16, 0.914986945, 0.677698961},
			{255, 31, 1.13858829, 0.00967959898},
		}},
		{"yarn as Qwen3 recommends", Config{Type: YaRN, HeadDim: 128, Theta: 1e6, Factor: 4, OriginalMaxPositions: 32768}, []value{
			{1, 1, 0.788505342, 0.821423349},
			{40959, 16, 0.706771919, 0.892720812},
			{40959, 32, 1.03168811, -0.481764084},
			{131071, 1, -0.66674634, 0.922998543},
			{131071, 63, 1.13768823, 0.0462870327},
		}},
		{"yarn with fractional borders and mscale", Config{Type: YaRN, HeadDim: 64, Theta: 1e4, Factor: 40,
			OriginalMaxPositions: 4096, NoTruncate: true, Mscale: 1, MscaleAllDim: 0.707}, []value{
			{1, 0, 0.586620477, 0.913607262},
			{4097, 8, 0.297793438, 1.04408854},
			{4097, 16, -0.870248327, -0.64920695},
			{4097, 31, 1.08562513, 0.0148290342},
		}},
		{"yarn with betas and attention factor", Config{Type: YaRN, HeadDim: 64, Theta: 1e4, Factor: 8,
			OriginalMaxPositions: 2048, BetaFast: 16, BetaSlow: 2, AttentionFactor: 1.25}, []value{
			{3, 0, -1.23749062, 0.17640001},
			{3, 8, 1.19417061, 0.369400258},
			{3, 16, 1.24993353, 0.0128903965},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table, err := New(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			n := table.Pairs()
			cos, sin := make([]float32, n), make([]float32, n)
			for _, w := range tc.want {
				table.Fill(cos, sin, []int32{w.position})
				if math.Abs(float64(cos[w.pair])-w.cos) > 1e-7 || math.Abs(float64(sin[w.pair])-w.sin) > 1e-7 {
					t.Errorf("position %d pair %d: cos %.9g sin %.9g, want %.9g %.9g",
						w.position, w.pair, cos[w.pair], sin[w.pair], w.cos, w.sin)
				}
			}
		})
	}
}

// A row is the same bits whether it comes from the cache, is computed past it,
// or stands among others.
func TestFillCached(t *testing.T) {
	table, err := New(Config{HeadDim: 64, Theta: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	positions := []int32{70, 0, 63, 64, maxCached - 1, maxCached, math.MaxInt32, 5, 5, -3}
	n := table.Pairs()
	cos, sin := make([]float32, len(positions)*n), make([]float32, len(positions)*n)
	table.Fill(cos, sin, positions)
	wantCos, wantSin := make([]float32, n), make([]float32, n)
	for r, p := range positions {
		table.compute(wantCos, wantSin, p)
		for i := range n {
			if cos[r*n+i] != wantCos[i] || sin[r*n+i] != wantSin[i] {
				t.Fatalf("position %d pair %d: %g %g, want %g %g", p, i, cos[r*n+i], sin[r*n+i], wantCos[i], wantSin[i])
			}
		}
	}
	if got := testing.AllocsPerRun(10, func() { table.Fill(cos, sin, positions) }); got != 0 {
		t.Errorf("%v allocations to fill cached rows, want 0", got)
	}
}

func TestNewRefuses(t *testing.T) {
	yarn := Config{Type: YaRN, HeadDim: 64, Theta: 1e4, Factor: 4, OriginalMaxPositions: 64}
	with := func(change func(*Config)) Config {
		c := yarn
		change(&c)
		return c
	}
	for _, tc := range []struct {
		config Config
		want   string
	}{
		{with(func(c *Config) { c.Type = "mrope" }), "mrope"},
		{with(func(c *Config) { c.Type = "llama3" }), "want default, linear or yarn"},
		{with(func(c *Config) { c.HeadDim = 63 }), "head_dim 63"},
		{with(func(c *Config) { c.HeadDim = 0 }), "head_dim 0"},
		{with(func(c *Config) { c.HeadDim = 1 << 30 }), "head_dim"},
		{with(func(c *Config) { c.Theta = 0 }), "rope_theta 0"},
		{with(func(c *Config) { c.Theta = math.NaN() }), "rope_theta NaN"},
		{with(func(c *Config) { c.Theta = math.Inf(1) }), "rope_theta +Inf"},
		{with(func(c *Config) { c.Factor = 0.5 }), "factor 0.5"},
		{with(func(c *Config) { c.Factor = 0; c.Type = Linear }), "factor 0"},
		{with(func(c *Config) { c.OriginalMaxPositions = 0 }), "original_max_position_embeddings 0"},
		{with(func(c *Config) { c.OriginalMaxPositions = 2 }), "want a longer original context"},
		{with(func(c *Config) { c.BetaSlow = 64 }), "beta_slow"},
		{with(func(c *Config) { c.AttentionFactor = -1 }), "attention_factor -1"},
		{with(func(c *Config) { c.Mscale = math.Inf(1) }), "mscale +Inf"},
	} {
		_, err := New(tc.config)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want an error with %q", tc.config, err, tc.want)
		}
	}
}

// FuzzConfig: whatever New accepts gives finite rows of bounded size.
func FuzzConfig(f *testing.F) {
	f.Add(uint8(0), 128, 1e6, 0.0, 0.0, 0.0, 0.0, 0.0, int32(40000))
	f.Add(uint8(1), 64, 1e4, 4.0, 0.0, 0.0, 0.0, 0.0, int32(1))
	f.Add(uint8(2), 64, 1e4, 4.0, 64.0, 32.0, 1.0, 1.25, int32(255))
	f.Add(uint8(2), 2, 2.0, 1.0, 7.0, 0.0, 0.0, 0.0, int32(-1))
	f.Fuzz(func(t *testing.T, kind uint8, dim int, theta, factor, original, fast, slow, attention float64, position int32) {
		c := Config{Type: []string{Default, Linear, YaRN}[kind%3], HeadDim: dim, Theta: theta, Factor: factor,
			OriginalMaxPositions: original, BetaFast: fast, BetaSlow: slow, AttentionFactor: attention}
		table, err := New(c)
		if err != nil {
			return
		}
		cos, sin := make([]float32, table.Pairs()), make([]float32, table.Pairs())
		table.Fill(cos, sin, []int32{position})
		bound := table.Scale() * (1 + 1e-6)
		for i := range cos {
			if !(math.Abs(float64(cos[i])) <= bound && math.Abs(float64(sin[i])) <= bound) {
				t.Fatalf("%+v position %d pair %d: cos %g sin %g", c, position, i, cos[i], sin[i])
			}
		}
	})
}
