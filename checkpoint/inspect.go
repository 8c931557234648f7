package checkpoint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"windrow/architecture"
	"windrow/backend"
)

// Inspection is what a checkpoint holds and what running it takes.
type Inspection struct {
	Architecture     string  `json:"architecture"`
	HiddenSize       int     `json:"hidden_size"`
	Layers           int     `json:"layers"`
	Heads            int     `json:"heads"`
	KVHeads          int     `json:"kv_heads"`
	HeadDim          int     `json:"head_dim"`
	IntermediateSize int     `json:"intermediate_size"`
	VocabSize        int     `json:"vocab_size"`
	MaxPositions     int     `json:"max_positions"`
	TieEmbeddings    bool    `json:"tie_embeddings"`
	RopeType         string  `json:"rope_type"`
	RopeTheta        float64 `json:"rope_theta"`
	RopeFactor       float64 `json:"rope_factor,omitempty"`
	RotatedDim       int     `json:"rotated_dim,omitempty"` // 0: all of a head rotates
	MaskTokenID      int32   `json:"mask_token_id"`         // -1: none
	EOSTokenIDs      []int32 `json:"eos_token_ids"`
	QKNorm           bool    `json:"qk_norm"`
	QKVBias          bool    `json:"qkv_bias"`
	// Experts is the shape of a mixture of experts; nil: there is none.
	Experts *ExpertsUse `json:"experts,omitempty"`
	// Delta is the shape of gated DeltaNet layers; nil: there are none.
	Delta *DeltaUse `json:"delta,omitempty"`
	// Drafts says that there is a head for drafts, whose tensors count below.
	Drafts bool `json:"drafts,omitempty"`
	// DraftHead is what it has of its own; nil: there is none.
	DraftHead *DraftUse `json:"draft_head,omitempty"`
	// Quantization names the form of weights that are converted when they are
	// loaded; what follows counts what they become.
	Quantization string `json:"quantization,omitempty"`

	Tensors    int   `json:"tensors"`
	Parameters int64 `json:"parameters"` // as stored: a tied head counts once
	Bytes      int64 `json:"bytes"`
	// BitsPerWeight is over all tensors, scales and biases included.
	BitsPerWeight float64      `json:"bits_per_weight"`
	DTypes        []DTypeUse   `json:"dtypes"` // most bytes first
	KV            []KVUse      `json:"kv"`     // by KV dtype: f32, bf16, int8
	Memory        []MemoryNeed `json:"memory"` // weights and KV at some contexts
}

// ExpertsUse is the shape of a mixture, and what a row uses of it.
type ExpertsUse struct {
	Count            int `json:"count"`
	PerToken         int `json:"per_token"`
	IntermediateSize int `json:"intermediate_size"`
	// SharedIntermediateSize is that of the expert that every token has; 0: there is none.
	SharedIntermediateSize int `json:"shared_intermediate_size,omitempty"`
	// ReadBytes is what a forward of one row reads of all weights, the experts that it
	// does not choose left out.
	ReadBytes int64 `json:"read_bytes"`
}

// DeltaUse is the shape of gated DeltaNet layers, and what they keep of a sequence.
type DeltaUse struct {
	Layers     int `json:"layers"` // of the model's
	KeyHeads   int `json:"key_heads"`
	ValueHeads int `json:"value_heads"`
	KeyDim     int `json:"key_dim"`
	ValueDim   int `json:"value_dim"`
	// StateBytes is what one sequence takes in all of them, however long it is: the
	// states, and the log of the last LogRows rows, which decoding may take back. A prompt
	// of more than one forward takes twice that while it is computed.
	StateBytes int64 `json:"state_bytes"`
	LogRows    int   `json:"log_rows"`
}

// DraftUse is what a head for drafts has of its own: weights beside the embedding and the
// head, which are the model's, and keys and values in bf16.
type DraftUse struct {
	Bytes           int64 `json:"bytes"`
	KVBytesPerToken int64 `json:"kv_bytes_per_token"`
}

// DTypeUse counts the tensors of one dtype; affine types by their group, too:
// "affine4 g64".
type DTypeUse struct {
	DType      string `json:"dtype"`
	Tensors    int    `json:"tensors"`
	Parameters int64  `json:"parameters"`
	Bytes      int64  `json:"bytes"`
}

// KVUse is what one token's keys and values take in one KV dtype.
type KVUse struct {
	DType         string `json:"dtype"`
	BytesPerToken int64  `json:"bytes_per_token"`
}

// MemoryNeed is what one sequence of Context tokens needs, in bytes: weights,
// KV, and the state of recurrent layers. Activations come on top.
type MemoryNeed struct {
	Context int    `json:"context"`
	KVDType string `json:"kv_dtype"`
	KV      int64  `json:"kv_bytes"`
	Total   int64  `json:"total_bytes"`
}

// kvTypes are those that differ in what they take: f16 takes what bf16 does.
var kvTypes = []backend.KVType{backend.KVF32, backend.KVBF16, backend.KVInt8}

// Inspect counts a model's tensors and works out its memory. It reads no
// weights. Memory is given for 4,096 tokens and for the model's whole context.
func Inspect(src Source) Inspection {
	c := src.Config()
	in := Inspection{
		Architecture: c.Architecture, HiddenSize: c.HiddenSize, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads,
		HeadDim: c.HeadDim, IntermediateSize: c.IntermediateSize, VocabSize: c.VocabSize, MaxPositions: c.MaxPositions,
		TieEmbeddings: c.TieEmbeddings, RopeType: c.Rope.Type, RopeTheta: c.Rope.Theta, RopeFactor: c.Rope.Factor,
		MaskTokenID: c.MaskTokenID, EOSTokenIDs: append([]int32{}, c.EOSTokenIDs...),
	}
	if c.Rope.HeadDim != c.HeadDim {
		in.RotatedDim = c.Rope.HeadDim
	}
	in.QKNorm = inFirst(src, architecture.QueryNorm, architecture.ClassNorm)
	in.QKVBias = inFirst(src, architecture.Query, architecture.ClassBias)
	if c.Published != nil {
		in.Quantization = c.Published.String()
	}
	in.countTensors(src)
	rows := architecture.StepRows(c.MaskTokenID)
	states := c.SequenceBytes(rows)
	if e := c.Experts; e != nil {
		in.Experts = &ExpertsUse{Count: e.Count, PerToken: e.PerToken, IntermediateSize: e.InnerSize, SharedIntermediateSize: e.SharedInnerSize, ReadBytes: ReadBytes(src)}
	}
	if d := c.Delta; d != nil {
		in.Delta = &DeltaUse{c.RecurrentLayers(), d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim, states, rows}
	}
	if in.Drafts = c.MTPLayers > 0; in.Drafts {
		in.DraftHead = &DraftUse{Bytes: draftBytes(src), KVBytesPerToken: c.KVBytesPerToken(backend.KVBF16) / int64(c.Layers-c.RecurrentLayers()) * int64(c.MTPLayers)}
	}
	for _, t := range kvTypes {
		in.KV = append(in.KV, KVUse{t.String(), c.KVBytesPerToken(t)})
	}
	contexts := []int{c.MaxPositions}
	if c.MaxPositions > 4096 {
		contexts = []int{4096, c.MaxPositions}
	}
	for _, context := range contexts {
		for _, kv := range in.KV {
			bytes := kv.BytesPerToken * int64(context)
			in.Memory = append(in.Memory, MemoryNeed{context, kv.DType, bytes, in.Bytes + states + bytes})
		}
	}
	return in
}

// ReadBytes is how many bytes of weights a forward of one row reads, scales and biases
// included: of experts those that are chosen, not the embedding's rows that are not
// looked up, nor tensors that the architecture does not know.
func ReadBytes(src Source) (n int64) {
	c := src.Config()
	a := architecture.Of(c)
	for _, name := range src.Names() {
		p, known := a.Find(c, name)
		if t, ok := src.Tensor(name); ok && known {
			n += p.ReadBytes(c, int64(t.Bytes()))
		}
	}
	return n
}

// draftBytes is what the weights of the head for drafts take.
func draftBytes(src Source) (n int64) {
	c := src.Config()
	a := architecture.Of(c)
	for _, name := range src.Names() {
		if p, known := a.Find(c, name); known && p.Layer >= c.Layers {
			t, _ := src.Tensor(name)
			n += int64(t.Bytes())
		}
	}
	return n
}

// inFirst reports whether the first layer that may have a parameter has it.
func inFirst(src Source, role architecture.Role, class architecture.Class) bool {
	c := src.Config()
	a := architecture.Of(c)
	for layer := range c.Layers {
		for _, t := range a.Role(c, layer, role, class) {
			_, ok := src.Tensor(t.Name)
			return ok
		}
	}
	return false
}

func (in *Inspection) countTensors(src Source) {
	uses := map[string]*DTypeUse{}
	for _, name := range src.Names() {
		t, ok := src.Tensor(name)
		if !ok {
			continue
		}
		label := t.DType.String()
		if t.Group != 0 {
			label = fmt.Sprintf("%s g%d", label, t.Group)
		}
		use := uses[label]
		if use == nil {
			use = &DTypeUse{DType: label}
			uses[label] = use
		}
		bytes, parameters := int64(t.Bytes()), int64(t.Elements())
		use.Tensors++
		use.Bytes += bytes
		use.Parameters += parameters
		in.Tensors++
		in.Bytes += bytes
		in.Parameters += parameters
	}
	for _, label := range slices.Sorted(maps.Keys(uses)) {
		in.DTypes = append(in.DTypes, *uses[label])
	}
	slices.SortStableFunc(in.DTypes, func(a, b DTypeUse) int { return cmp.Compare(b.Bytes, a.Bytes) })
	if in.Parameters > 0 {
		in.BitsPerWeight = 8 * float64(in.Bytes) / float64(in.Parameters)
	}
}
