package convert

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
)

// maxShardBytes is where a quantised checkpoint is cut into several files; as
// mlx-lm's.
const maxShardBytes = 5 << 30

// quantizeStep says what becomes of one tensor, or of a part of one.
type quantizeStep struct {
	source backend.Tensor
	name   string // under which it is written
	shape  []int
	module string // the name without its ending
	out    int    // rows; 1 for vectors
	in     int
	format checkpoint.AffineFormat // zero Bits: kept
	float  backend.DType           // in which it is kept: bf16, or f32
	reason string                  // why it is kept; "" for vectors of the model and where it is not
	vector bool                    // or anything else that is no matrix: kept in one row
	// each of every per rows of the source are the step's, from first on: of gates and
	// ups of all experts in one tensor the ones or the others.
	each, per, first int
	centred          bool // a norm, written as what it is above 1
	expert           bool // of a mixture
	shard            int
	// Where data, scales and biases go in the shard's data section.
	at [3]int64
}

// quantized tells a step that packs from one that keeps.
func (s *quantizeStep) quantized() bool { return s.format.Bits != 0 }

// row is the source's row of the step's row o.
func (s *quantizeStep) row(o int) int { return o/s.each*s.per + s.first + o%s.each }

// before is what the step takes of the source, in bytes.
func (s *quantizeStep) before() int64 { return int64(s.source.Bytes()) * int64(s.each) / int64(s.per) }

// rowBytes is what one row takes: data, scales, biases.
func (s *quantizeStep) rowBytes() [3]int64 {
	if !s.quantized() {
		return [3]int64{int64(s.float.Size() * s.in)}
	}
	groups := int64(2 * (s.in / s.format.Group))
	return [3]int64{int64(s.in * s.format.Bits / 8), groups, groups}
}

func (s *quantizeStep) bytes() (n int64) {
	for _, b := range s.rowBytes() {
		n += b * int64(s.out)
	}
	return n
}

// planQuantize decides on each tensor, in the order of the source. Tensors that
// the architecture does not know are kept.
func planQuantize(src checkpoint.Source, policy Policy) ([]*quantizeStep, error) {
	rules, err := policy.Rules()
	if err != nil {
		return nil, err
	}
	config := src.Config()
	a, err := architecture.Lookup(config.Architecture)
	if err != nil {
		return nil, err
	}
	if config.Delta != nil && config.Delta.Tiled {
		return nil, errors.New("the value heads of its DeltaNets lie in the order of GGUF files: want the model's Hugging Face folder")
	}
	var steps []*quantizeStep
	for _, name := range src.Names() {
		t, ok := src.Tensor(name)
		p, known := a.Find(config, name)
		if !ok || known && p.Role == architecture.Head && config.TieEmbeddings { // the embedding's copy
			continue
		}
		if t.DType.Quantized() {
			return nil, fmt.Errorf("tensor %s: is %v already: want a model in bf16, f16 or f32", name, t.DType)
		}
		if err := t.Check(); err != nil {
			return nil, err
		}
		if known && len(t.Shape) == 3 && p.Class == architecture.ClassExpert {
			steps = append(steps, planStack(t, p, rules)...)
			continue
		}
		s := &quantizeStep{source: t, name: name, shape: t.Shape, out: 1, in: t.Elements(), vector: len(t.Shape) != 2, float: backend.BF16,
			expert: known && p.Class == architecture.ClassExpert}
		var isWeight bool
		s.module, isWeight = strings.CutSuffix(name, ".weight")
		if !s.vector {
			s.out, s.in = t.Shape[0], t.Shape[1]
		}
		s.each, s.per = s.out, s.out
		switch {
		case !known && len(t.Shape) > 1:
			s.reason = fmt.Sprintf("no tensor of %s", a.Name)
		case s.vector && len(t.Shape) > 1 && p.Class.Quantizable():
			s.reason = fmt.Sprintf("has %d dimensions", len(t.Shape))
		case s.vector:
			s.centred = known && p.ZeroCentred
			if known && t.DType == backend.F32 && (p.Role == architecture.DeltaDecay || p.Role == architecture.DeltaTimeStep) {
				s.float = backend.F32 // exponents of what a state keeps over thousands of rows
			}
		case !isWeight:
			s.reason = "not named .weight"
		default:
			var bits int
			if bits, s.reason = rules.Bits(s.module, p.Class, s.in); bits != 16 {
				s.format = checkpoint.AffineFormat{Bits: bits, Group: policy.Group}
			}
		}
		steps = append(steps, s)
	}
	if len(steps) == 0 {
		return nil, errors.New("the model has no weights")
	}
	return steps, nil
}

// layShards assigns the tensors to files of at most limit bytes (or one
// tensor), and returns each file's tensors in the order of their data.
//
// Packed words come first, then matrices, scales and biases, vectors: all
// sizes up to the last kind are multiples of 64 bytes in published models, so
// that what kernels read stays aligned.
func layShards(steps []*quantizeStep, limit int64) [][]checkpoint.RawTensor {
	var shards [][]*quantizeStep
	size := limit
	for _, s := range steps {
		if n := s.bytes(); size+n > limit {
			shards, size = append(shards, nil), 0
		}
		size += s.bytes()
		s.shard = len(shards) - 1
		shards[s.shard] = append(shards[s.shard], s)
	}
	type piece struct {
		checkpoint.RawTensor
		step *quantizeStep
		part int
		kind int
		size int64
	}
	var files [][]checkpoint.RawTensor
	for _, shard := range shards {
		var pieces []piece
		for _, s := range shard {
			name, rows := s.name, s.rowBytes()
			stack := s.shape[:max(0, len(s.shape)-2)] // of a stack of matrices: how many
			matrix := func(out, in int) []int { return append(slices.Clone(stack), out, in) }
			add := func(name, dtype string, part, kind int, shape ...int) {
				pieces = append(pieces, piece{checkpoint.RawTensor{Name: name, DType: dtype, Shape: shape}, s, part, kind, rows[part] * int64(s.out)})
			}
			switch {
			case s.quantized():
				groups := s.in / s.format.Group
				out := s.shape[len(s.shape)-2]
				add(name, "U32", 0, 0, matrix(out, s.in*s.format.Bits/32)...)
				add(s.module+".scales", "BF16", 1, 2, matrix(out, groups)...)
				add(s.module+".biases", "BF16", 2, 2, matrix(out, groups)...)
			case s.vector:
				add(name, strings.ToUpper(s.float.String()), 0, 3, s.shape...)
			default:
				add(name, "BF16", 0, 1, s.shape...)
			}
		}
		slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(a.kind, b.kind) })
		at := int64(0)
		var list []checkpoint.RawTensor
		for _, p := range pieces {
			p.step.at[p.part] = at
			at += p.size
			list = append(list, p.RawTensor)
		}
		files = append(files, list)
	}
	return files
}

// quantization is the entry for config.json; nil where nothing is packed.
// Matrices that are kept stand there as false, so that no reader need guess.
func quantizationEntry(steps []*quantizeStep, p Policy) map[string]any {
	entry := map[string]any{"bits": p.Bits, "group_size": p.Group}
	packed := false
	for _, s := range steps {
		packed = packed || s.quantized()
		switch {
		case s.vector, s.quantized() && s.format.Bits == p.Bits:
		case s.quantized():
			entry[s.module] = map[string]int{"bits": s.format.Bits, "group_size": s.format.Group}
		default:
			entry[s.module] = false
		}
	}
	if !packed {
		return nil
	}
	return entry
}
