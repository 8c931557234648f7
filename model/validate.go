package model

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"strings"

	"windrow/backend"
	"windrow/checkpoint"
)

// A golden file holds what a reference engine computed, as safetensors:
//
//   - prompt.ids [n], prompt.logits [n, vocabulary], prompt.hidden.i [n, hidden]
//     (i = 0: embeddings; i: after layer i; the last one after the final norm)
//   - windowK.base [1], windowK.ids and windowK.positions [base + rows]: a
//     prefix, then the packed rows of a window, each with its logical position;
//     windowK.logits [rows, vocabulary]
//   - or only ids [n] and logits [n, vocabulary]
//   - mtp.logits [n − 1, vocabulary]: of the head for drafts over the prompt, fed in row
//     t with the prompt's hidden state of t and token t + 1
//
// Deviation is how far one entry of a golden file is from what we computed.
type Deviation struct {
	// Entry is the entry's name; a window's carries "(cold)" where prefix and
	// rows went in one forward, "(cached)" where the prefix was cached first; a
	// prompt's "(per token)" where each forward had one row.
	Entry string `json:"entry"`
	// RelativeNorm is |ours − golden| / |golden|, MaxDifference the largest
	// difference of one element.
	RelativeNorm  float64 `json:"relative_norm"`
	MaxDifference float64 `json:"max_difference"`
	// MaxReference is the largest magnitude in the golden entry.
	MaxReference float64 `json:"max_reference"`
	// ArgmaxEqual counts the rows of logits whose argmax agrees, of Rows.
	ArgmaxEqual int `json:"argmax_equal,omitempty"`
	Rows        int `json:"rows"`
	// Bits is a hash of what we computed, to the bit.
	Bits uint64 `json:"-"`
}

// ValidateOptions say how golden entries are recomputed.
type ValidateOptions struct {
	KV backend.KVType
	// Chunk is how many rows a forward of the prompt carries; 0: all at once.
	Chunk int
	// PerToken runs each prompt a second time, one row a forward: the kernels of
	// decoding then have to agree with those of prefill.
	PerToken bool
	// Show, where set, is called with each entry's values, ours and the golden ones,
	// [rows × width] both.
	Show func(d Deviation, ours, golden []float32)
}

// Validate recomputes every entry of a golden file and reports how far off
// each is, in the order prompt, hidden states, windows.
func (m *Model) Validate(ctx context.Context, golden *checkpoint.Safetensors, o ValidateOptions) ([]Deviation, error) {
	v := validator{m: m, golden: golden, o: o}
	for _, prefix := range []string{"", "prompt."} {
		if _, ok := golden.Lookup(prefix + "ids"); !ok {
			continue
		}
		if err := v.prompt(ctx, prefix, o.Chunk, ""); err != nil {
			return nil, err
		}
		if o.PerToken {
			if err := v.prompt(ctx, prefix, 1, " (per token)"); err != nil {
				return nil, err
			}
		}
	}
	for i := 0; ; i++ {
		name := windowPrefix(i)
		if _, ok := golden.Lookup(name + "ids"); !ok {
			break
		}
		if err := v.window(ctx, name); err != nil {
			return nil, err
		}
	}
	if len(v.out) == 0 {
		return nil, fmt.Errorf("golden file: no entry ids, prompt.ids or window0.ids")
	}
	return v.out, nil
}

func windowPrefix(i int) string { return fmt.Sprintf("window%d.", i) }

// HeadLogits is the entry of the logits of a head for drafts.
const HeadLogits = "mtp.logits"

// NotCompared lists the entries of a golden file that none of the deviations is of, those
// left out that say what is run.
func NotCompared(golden *checkpoint.Safetensors, deviations []Deviation) (list []string) {
	known := map[string]bool{}
	for _, d := range deviations {
		entry, _, _ := strings.Cut(d.Entry, " (")
		known[entry] = true
		prefix := strings.TrimSuffix(entry, "logits")
		for _, input := range []string{"ids", "positions", "base"} {
			known[prefix+input] = true
		}
	}
	for _, t := range golden.Tensors {
		if !known[t.Name] {
			list = append(list, t.Name)
		}
	}
	return list
}

type validator struct {
	m      *Model
	golden *checkpoint.Safetensors
	o      ValidateOptions
	out    []Deviation
}

func (v *validator) ints(name string) ([]int32, error) {
	t, ok := v.golden.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("golden file: entry %s is missing", name)
	}
	return t.Int32s()
}

// compare adds the deviation of ours from a golden entry [rows, width].
func (v *validator) compare(entry, label string, ours []float32, width int) error {
	t, ok := v.golden.Lookup(entry)
	if !ok {
		return fmt.Errorf("golden file: entry %s is missing", entry)
	}
	want, err := t.Float32s()
	if err != nil {
		return err
	}
	if len(want) != len(ours) {
		return fmt.Errorf("golden file: entry %s has shape %v, this model gives %d × %d", entry, t.Shape, len(ours)/width, width)
	}
	d := Deviation{Entry: label, Rows: len(ours) / width, Bits: bits(ours)}
	var diff2, norm2 float64
	for i, w := range want {
		e := math.Abs(float64(ours[i]) - float64(w))
		diff2 += e * e
		norm2 += float64(w) * float64(w)
		d.MaxDifference = max(d.MaxDifference, e)
		d.MaxReference = max(d.MaxReference, math.Abs(float64(w)))
	}
	d.RelativeNorm = math.Sqrt(diff2 / norm2)
	if strings.HasSuffix(entry, "logits") {
		for r := range d.Rows {
			if argmax(ours[r*width:(r+1)*width]) == argmax(want[r*width:(r+1)*width]) {
				d.ArgmaxEqual++
			}
		}
	}
	v.out = append(v.out, d)
	if v.o.Show != nil {
		v.o.Show(d, ours, want)
	}
	return nil
}

// bits is a hash of numbers, to the bit.
func bits(x []float32) uint64 {
	h, word := fnv.New64a(), make([]byte, 4)
	for _, v := range x {
		binary.LittleEndian.PutUint32(word, math.Float32bits(v))
		h.Write(word)
	}
	return h.Sum64()
}

func argmax(x []float32) (best int) {
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}

// prompt compares one prompt's entries; how follows their names.
func (v *validator) prompt(ctx context.Context, prefix string, chunk int, how string) error {
	ids, err := v.ints(prefix + "ids")
	if err != nil {
		return err
	}
	if chunk <= 0 || chunk > len(ids) {
		chunk = len(ids)
	}
	cache, err := v.m.NewCache(CacheOptions{Capacity: len(ids), MaxRows: chunk, DType: v.o.KV})
	if err != nil {
		return err
	}
	defer cache.Close()
	heads := v.heads(prefix)
	var logits, states []float32
	hidden := map[int][]float32{}
	for from := 0; from < len(ids); from += chunk {
		b := sequence(cache, ids[from:min(from+chunk, len(ids))], nil)
		if v.shown(prefix) { // else forwards run as they do without, where operations may be joined
			b.Hidden = func(i int, states []float32) { hidden[i] = append(hidden[i], states...) }
		}
		for i := range b.Want {
			b.Want[i].Hidden = heads
		}
		results, err := v.m.Forward(ctx, b)
		if err != nil {
			return err
		}
		for _, r := range results {
			logits, states = append(logits, r.Logits...), append(states, r.Hidden...)
		}
		if err := cache.Commit(len(b.Tokens)); err != nil {
			return err
		}
	}
	for i := range v.m.config.Layers + 1 {
		name := fmt.Sprintf("%shidden.%d", prefix, i)
		if _, ok := v.golden.Lookup(name); ok {
			if err := v.compare(name, name+how, hidden[i], v.m.config.HiddenSize); err != nil {
				return err
			}
		}
	}
	err = v.compare(prefix+"logits", prefix+"logits"+how, logits, v.m.config.VocabSize)
	if err == nil && heads {
		err = v.head(ctx, cache, ids, states, chunk, how)
	}
	return err
}

// heads reports whether a prompt has golden logits of the head for drafts, which was
// loaded.
func (v *validator) heads(prefix string) bool {
	_, ok := v.golden.Lookup(HeadLogits)
	_, other := v.golden.Lookup("prompt.ids")
	return ok && v.m.Drafts() && (prefix != "" || !other)
}

// head compares the logits of the head for drafts over a prompt that is cached, from its
// hidden states. They are those of the head as it is in the checkpoint: of a copy in 4
// bits, which drafts are made with, any would be past a tolerance.
func (v *validator) head(ctx context.Context, cache *Cache, ids []int32, states []float32, chunk int, how string) error {
	const most = 1024 // rows: hidden states go to a GPU by way of page-locked memory
	width, pairs := v.m.config.HiddenSize, len(ids)-1
	var logits []float32
	for from := 0; from < pairs; {
		n := min(chunk, most, pairs-from)
		b := &DraftBatch{Tokens: ids[from+1 : from+1+n], Hidden: states[from*width : (from+n)*width], Spans: []DraftSpan{{Cache: cache, At: from, Rows: n}}}
		for r := range n {
			b.Want = append(b.Want, Wanted{Row: int32(r), Logits: true})
		}
		results, err := v.m.draft(ctx, b)
		if err != nil {
			return err
		}
		for _, r := range results {
			logits = append(logits, r.Logits...)
		}
		from += n
	}
	return v.compare(HeadLogits, HeadLogits+how, logits, v.m.config.VocabSize)
}

// shown reports whether a prompt has golden hidden states.
func (v *validator) shown(prefix string) bool {
	for i := range v.m.config.Layers + 1 {
		if _, ok := v.golden.Lookup(fmt.Sprintf("%shidden.%d", prefix, i)); ok {
			return true
		}
	}
	return false
}

func (v *validator) window(ctx context.Context, prefix string) error {
	ids, err := v.ints(prefix + "ids")
	if err != nil {
		return err
	}
	positions, err := v.ints(prefix + "positions")
	if err != nil {
		return err
	}
	bases, err := v.ints(prefix + "base")
	if err != nil {
		return err
	}
	if len(bases) != 1 || len(positions) != len(ids) || bases[0] < 0 || int(bases[0]) >= len(ids) {
		return fmt.Errorf("golden file: %sbase %v with %d ids and %d positions", prefix, bases, len(ids), len(positions))
	}
	base := int(bases[0])
	width := v.m.config.VocabSize
	for _, cached := range []bool{false, true} {
		if cached && base == 0 {
			continue
		}
		cache, err := v.m.NewCache(CacheOptions{Capacity: len(ids), MaxRows: len(ids), DType: v.o.KV})
		if err != nil {
			return err
		}
		defer cache.Close()
		from, label := 0, prefix+"logits (cold)"
		if cached {
			label = prefix + "logits (cached)"
			if _, err := v.m.Forward(ctx, withoutResults(sequence(cache, ids[:base], positions[:base]))); err != nil {
				return err
			}
			if err := cache.Commit(base); err != nil {
				return err
			}
			from = base
		}
		logits, err := v.forward(ctx, sequence(cache, ids[from:], positions[from:]), nil)
		if err != nil {
			return err
		}
		if err := v.compare(prefix+"logits", label, logits[(base-from)*width:], width); err != nil {
			return err
		}
	}
	return nil
}

// forward appends the batch's logits, row by row.
func (v *validator) forward(ctx context.Context, b *Batch, logits []float32) ([]float32, error) {
	results, err := v.m.Forward(ctx, b)
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		logits = append(logits, r.Logits...)
	}
	return logits, nil
}

// sequence makes a batch of one span that wants every row's logits; positions
// nil means they follow the cache's base.
func sequence(c *Cache, tokens, positions []int32) *Batch {
	b := &Batch{Tokens: tokens, Positions: positions, Spans: []Span{{Cache: c, Rows: len(tokens)}}}
	for r := range tokens {
		if positions == nil {
			b.Positions = append(b.Positions, int32(c.Base()+r))
		}
		b.Want = append(b.Want, Wanted{Row: int32(r), Logits: true})
	}
	return b
}

func withoutResults(b *Batch) *Batch {
	b.Want = nil
	return b
}
