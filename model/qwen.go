package model

import (
	"context"
	"errors"
	"fmt"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/rope"
)

// Model is a dense Qwen-style transformer whose weights a backend has taken.
//
// A Model runs one forward at a time.
type Model struct {
	config  *checkpoint.Config
	backend backend.Backend

	embed  backend.Matrix // [vocabulary, hidden]
	layers []layer
	norm   backend.Vector
	head   backend.Matrix // [vocabulary, hidden]; the embedding's where tied

	forward backend.Forward
	stores  []backend.LayerStore // of each layer
	spans   []backend.Span       // of the current forward
}

// layer is one transformer block, pre-norm: attention, then SwiGLU.
type layer struct {
	inputNorm, postNorm backend.Vector
	q, k, v, o          backend.Linear
	qNorm, kNorm        backend.Vector // per head, before RoPE; nil in Qwen2
	gate, up, down      backend.Linear
}

// Load hands src's weights to a backend. Which tensors are there decides on
// q/k norms and biases; the config is checked against them.
//
// The source must stay open for the model's life: a backend may keep its bytes.
func Load(b backend.Backend, src checkpoint.Source, o ...Option) (*Model, error) {
	return LoadContext(context.Background(), b, src, o...)
}

// Option is a choice made when a model is loaded.
type Option func(*options)

type options struct{ bars backend.Bars }

// Barring bars ids from every Argmax and Top of the model: those from limit on (0: no
// limit), as a vocabulary has that is padded past the tokenizer's size, and except, the
// mask's (negative: none).
func Barring(limit, except int32) Option {
	return func(o *options) { o.bars = backend.Bars{Limit: limit, Except: max(except, -1)} }
}

// LoadContext is Load for weights whose checkpoint stores them in another form:
// they are converted one after the other, as long as ctx lasts.
func LoadContext(ctx context.Context, b backend.Backend, src checkpoint.Source, o ...Option) (*Model, error) {
	chosen := options{bars: backend.NoBars}
	for _, choose := range o {
		choose(&chosen)
	}
	c := src.Config()
	table, err := rope.New(c.Rope)
	if err != nil {
		return nil, err
	}
	if err := checkDevices(src, b.Features().Devices); err != nil {
		return nil, err
	}
	m := &Model{config: c, backend: b}
	l := loader{ctx: ctx, b: b, src: src}
	m.embed = l.matrix("model.embed_tokens.weight", c.VocabSize, c.HiddenSize)
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	for i := range c.Layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		var y layer
		y.inputNorm = l.vector(at+"input_layernorm.weight", c.HiddenSize)
		y.q = l.linear(at+"self_attn.q_proj", q, c.HiddenSize)
		y.k = l.linear(at+"self_attn.k_proj", kv, c.HiddenSize)
		y.v = l.linear(at+"self_attn.v_proj", kv, c.HiddenSize)
		y.o = l.linear(at+"self_attn.o_proj", c.HiddenSize, q)
		y.qNorm = l.optionalVector(at+"self_attn.q_norm.weight", c.HeadDim)
		y.kNorm = l.optionalVector(at+"self_attn.k_norm.weight", c.HeadDim)
		if (y.qNorm == nil) != (y.kNorm == nil) {
			l.fail(fmt.Errorf("layer %d: has only one of q_norm and k_norm", i))
		}
		y.postNorm = l.vector(at+"post_attention_layernorm.weight", c.HiddenSize)
		y.gate = l.linear(at+"mlp.gate_proj", c.IntermediateSize, c.HiddenSize)
		y.up = l.linear(at+"mlp.up_proj", c.IntermediateSize, c.HiddenSize)
		y.down = l.linear(at+"mlp.down_proj", c.HiddenSize, c.IntermediateSize)
		m.layers = append(m.layers, y)
		if l.err != nil {
			return nil, l.err
		}
		if c.Architecture == "qwen3" && y.qNorm == nil {
			return nil, fmt.Errorf("layer %d: q_norm and k_norm are missing, which %s has", i, c.Architecture)
		}
	}
	m.norm = l.vector("model.norm.weight", c.HiddenSize)
	// A checkpoint may carry the tied head as a tensor of its own, too.
	if _, ok := src.Tensor("lm_head.weight"); ok && !c.TieEmbeddings {
		m.head = l.matrix("lm_head.weight", c.VocabSize, c.HiddenSize)
	} else if c.TieEmbeddings {
		m.head = m.embed
	} else {
		l.fail(errors.New("tensor lm_head.weight is missing and tie_word_embeddings is false"))
	}
	if l.err != nil {
		return nil, l.err
	}
	rotation, err := b.Rotation(table, c.MaxPositions)
	if err != nil {
		return nil, err
	}
	if err := m.compile(rotation, chosen.bars); err != nil {
		return nil, err
	}
	return m, nil
}

// Close frees what the model holds besides its weights, which are the backend's.
func (m *Model) Close() { m.forward.Close() }

// Config is the model's configuration.
func (m *Model) Config() *checkpoint.Config { return m.config }

// Backend is the backend that holds the weights.
func (m *Model) Backend() backend.Backend { return m.backend }

// WeightBytes is how many bytes of weights a forward reads, scales and biases
// included: all but the embedding's rows that are not looked up.
func (m *Model) WeightBytes(src checkpoint.Source) (n int64) {
	for _, name := range src.Names() {
		t, ok := src.Tensor(name)
		if ok && (name != "model.embed_tokens.weight" || m.head == m.embed) {
			n += int64(t.Bytes())
		}
	}
	return n
}

// loader fetches tensors and keeps the first error.
type loader struct {
	ctx context.Context
	b   backend.Backend
	src checkpoint.Source
	err error
}

func (l *loader) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *loader) tensor(name string, shape ...int) (t backend.Tensor, ok bool) {
	if l.err != nil {
		return t, false
	}
	t, ok = l.src.Tensor(name)
	if !ok {
		l.fail(fmt.Errorf("tensor %s is missing", name))
		return t, false
	}
	if fmt.Sprint(t.Shape) != fmt.Sprint(shape) {
		l.fail(fmt.Errorf("tensor %s: shape %v, the config says %v", name, t.Shape, shape))
		return t, false
	}
	return t, true
}

func (l *loader) matrix(name string, out, in int) backend.Matrix {
	t, ok := l.tensor(name, out, in)
	if !ok {
		return nil
	}
	if t.Make != nil {
		var err error
		if t, err = t.Make(l.ctx); err != nil {
			l.fail(err)
			return nil
		}
	}
	t.Split = splitOf(name)
	m, err := l.b.Matrix(t)
	if err != nil {
		l.fail(err)
		return nil
	}
	return m
}

func (l *loader) vector(name string, n int) backend.Vector {
	t, ok := l.tensor(name, n)
	if !ok {
		return nil
	}
	t.Split = splitOf(name)
	v, err := l.b.Vector(t)
	if err != nil {
		l.fail(err)
		return nil
	}
	return v
}

func (l *loader) optionalVector(name string, n int) backend.Vector {
	if _, ok := l.src.Tensor(name); !ok {
		return nil
	}
	return l.vector(name, n)
}

func (l *loader) linear(name string, out, in int) backend.Linear {
	return backend.Linear{Weight: l.matrix(name+".weight", out, in), Bias: l.optionalVector(name+".bias", out)}
}
