package server

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"windrow/decoder"
)

// params are the fields that all APIs share, and those of conversations and completions.
type params struct {
	model        string
	stream       bool
	includeUsage bool
	timings      bool
	steps        bool // decoding steps are streamed
	choices      int
	stop         []string
	maxTokens    int  // 0: what the context leaves
	silent       bool // nothing is to be generated
	mode         decoder.Mode
	window       int // 0: auto
	draft        decoder.DraftChoice
	ignoreEOS    bool
	seed         uint64
	sampling     sampling
	salt         string
	session      string // the name to save the conversation under; "": none
	logprobs     *int   // how many likely tokens are told of beside each; nil: nothing is
	// promptLogprobs are the same of the prompt's tokens.
	promptLogprobs *int
	form           *form // what the answer is held to; nil: free
}

// sampling are the fields that change how tokens are chosen; nil: the model's default.
type sampling struct {
	temperature, topP, minP         *float32
	repetition, presence, frequency *float32
	topK                            *int
	bias                            map[int32]float32
}

// meaningless are fields that may be given and say nothing here.
var meaningless = []string{"user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}

// readCommon reads the fields that all APIs share.
func readCommon(f *fields) (p params) {
	p.model = f.text("model")
	p.stream = f.isTrue("stream")
	p.choices = 1
	p.mode, p.window = readMode(f)
	p.draft = readDraft(f, p.mode)
	p.ignoreEOS = f.isTrue("ignore_eos")
	p.sampling = readSampling(f)
	p.seed = readSeed(f)
	p.salt = f.text("cache_salt")
	p.session = readSession(f)
	for _, name := range meaningless {
		f.raw(name)
	}
	return p
}

// readParams reads the fields that conversations and completions share, of which those
// take as few tokens as that.
func readParams(f *fields, fewest int) (p params) {
	p = readCommon(f)
	if o := f.object("stream_options"); o != nil {
		p.includeUsage = o.isTrue("include_usage")
		o.boolean("include_obfuscation") // there is none
		f.join(o)
		if !p.stream {
			f.bad("stream_options", "want stream to be true beside it")
		}
	}
	p.timings = f.isTrue("timings_per_token")
	if n := f.integer("n", 1, maxChoices); n != nil {
		p.choices = *n
	}
	p.stop = readStop(f, "stop")
	known := false
	for _, name := range []string{"max_completion_tokens", "max_tokens"} {
		if n := f.integer(name, fewest, math.MaxInt32); n != nil && !known {
			p.maxTokens, p.silent, known = *n, *n == 0, true
		}
	}
	if f.has("logit_processors") {
		f.fail(unsupported("logit_processors", "a processor of logits"))
	}
	return p
}

// checkForm refuses what a form of the answer cannot be beside.
func checkForm(f *fields, p *params) {
	if p.form != nil {
		checkHeld(f, p, p.form.param)
	}
}

// checkHeld refuses what cannot be beside a field that an answer is held to; "": it is
// held to none.
func checkHeld(f *fields, p *params, param string) {
	switch {
	case param == "":
	case p.mode == decoder.WeDLM:
		f.bad(param, "want mode ar or verified beside it: wedlm fills slots out of order")
	case p.ignoreEOS:
		f.bad("ignore_eos", "want none beside %s, which says where the answer ends", param)
	}
}

// readStop reads stop strings: a string, a list, or nothing.
func readStop(f *fields, name string) []string {
	raw := f.raw(name)
	if raw == nil {
		return nil
	}
	var list []string
	var one string
	if json.Unmarshal(raw, &one) == nil {
		list = []string{one}
	} else if json.Unmarshal(raw, &list) != nil {
		f.bad(name, "want a string or a list of strings")
		return nil
	}
	if len(list) > maxStops {
		f.bad(name, "%d of them: want at most %d", len(list), maxStops)
		return nil
	}
	for _, s := range list {
		if s == "" || len(s) > 1024 {
			f.bad(name, "want strings of 1 to 1024 bytes")
			return nil
		}
	}
	return list
}

// readDraft reads who drafts in mode verified; "" is the model's default.
func readDraft(f *fields, mode decoder.Mode) decoder.DraftChoice {
	s := f.text("draft")
	d, err := decoder.ParseDraft(s)
	switch {
	case strings.HasPrefix(s, string(decoder.DraftModel)+":"):
		f.bad("draft", "%.40q: want model, which is the one that the server was started with", s)
	case err != nil:
		f.bad("draft", "%.40q: want auto, mask, lookup, mtp, model or none", s)
	case d != "" && mode != "" && mode != decoder.Verified:
		f.bad("draft", "want mode verified beside it: %s has no drafts", mode)
	}
	return d
}

// readMode reads mode and window.
func readMode(f *fields) (mode decoder.Mode, window int) {
	if s := f.text("mode"); s != "" && s != "auto" {
		m, err := decoder.ParseMode(s)
		if err != nil {
			f.bad("mode", "%q: want auto, ar, wedlm or verified", s)
		}
		mode = m
	}
	if string(f.raw("window")) != `"auto"` {
		if n := f.integer("window", 1, decoder.MaxWindow); n != nil {
			window = *n
		}
	}
	if mode == decoder.WeDLM && window == 0 && f.has("window") {
		f.bad("window", "auto: want a number with mode wedlm, whose text depends on it")
	}
	return mode, window
}

func readSampling(f *fields) sampling {
	s := sampling{
		temperature: f.number("temperature", 0, 1000),
		topP:        f.number("top_p", 0, 1),
		minP:        f.number("min_p", 0, 1),
		repetition:  f.number("repetition_penalty", 1e-3, 1000),
		presence:    f.number("presence_penalty", -2, 2),
		frequency:   f.number("frequency_penalty", -2, 2),
	}
	// -1 is how some clients say that it is off.
	if s.topK = f.integer("top_k", -1, math.MaxInt32); s.topK != nil {
		*s.topK = max(*s.topK, 0)
	}
	raw := f.raw("logit_bias")
	if raw == nil {
		return s
	}
	var given map[string]float64
	if json.Unmarshal(raw, &given) != nil {
		f.bad("logit_bias", "want an object of numbers by token id")
		return s
	}
	if len(given) > maxBiases {
		f.bad("logit_bias", "%d of them: want at most %d", len(given), maxBiases)
		return s
	}
	s.bias = make(map[int32]float32, len(given))
	for key, v := range given {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 {
			f.bad("logit_bias", "want token ids as keys")
			return s
		}
		s.bias[int32(id)] = float32(min(max(v, -100), 100))
	}
	return s
}

// seedBits is how large a seed is that the server chooses: one that JavaScript can
// give back.
const seedBits = 53

// readSeed reads the seed, any integer of 64 bits; a random one where there is none.
func readSeed(f *fields) uint64 {
	raw := f.raw("seed")
	if raw == nil {
		return rand.Uint64() >> (64 - seedBits)
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return uint64(n)
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		f.bad("seed", "%s: want a whole number of 64 bits", short(raw))
	}
	return n
}

// choiceSeed is the seed of choice i: that of the first is the request's, those of
// others are far from it and from each other (the finaliser of SplitMix64).
func choiceSeed(seed uint64, i int) uint64 {
	if i == 0 {
		return seed
	}
	x := seed + uint64(i)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// options are the decoder's, for choice i; the model completes them.
func (p *params) options(m *Model, i int) decoder.Options {
	s := &p.sampling
	if g := m.Generation; g != nil {
		d := sampling{topP: g.TopP, minP: g.MinP, repetition: g.RepetitionPenalty, topK: g.TopK}
		// As in the reference implementation, a model samples where it says so.
		if g.DoSample == nil || *g.DoSample {
			d.temperature = g.Temperature
		}
		s = s.over(d)
	}
	o := decoder.Options{Mode: p.mode, Draft: p.draft, Drafts: m.Drafts, Window: p.window, MaxTokens: p.maxTokens, Logprobs: p.logprobs, PromptLogprobs: p.promptLogprobs}
	if o.Draft == "" && (o.Mode == "" || o.Mode == decoder.Verified) {
		o.Draft = m.Draft
	}
	if p.window > 0 {
		d := decoder.DefaultOptions()
		o.EntropyThreshold, o.PosPenalty = d.EntropyThreshold, d.PosPenalty
	}
	set := func(to *float32, from *float32) {
		if from != nil {
			*to = *from
		}
	}
	set(&o.Sampling.Temperature, s.temperature)
	set(&o.Sampling.TopP, s.topP)
	set(&o.Sampling.MinP, s.minP)
	set(&o.Sampling.RepetitionPenalty, s.repetition)
	set(&o.Sampling.PresencePenalty, s.presence)
	set(&o.Sampling.FrequencyPenalty, s.frequency)
	if s.topK != nil {
		o.Sampling.TopK = *s.topK
	}
	o.Sampling.LogitBias = s.bias
	o.Sampling.Seed = choiceSeed(p.seed, i)
	return o
}

// over is s, and d where s says nothing.
func (s sampling) over(d sampling) *sampling {
	def := func(x **float32, y *float32) {
		if *x == nil {
			*x = y
		}
	}
	def(&s.temperature, d.temperature)
	def(&s.topP, d.topP)
	def(&s.minP, d.minP)
	def(&s.repetition, d.repetition)
	if s.topK == nil {
		s.topK = d.topK
	}
	return &s
}
