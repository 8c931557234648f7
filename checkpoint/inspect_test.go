package checkpoint_test

import (
	"reflect"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/synthetic"
)

func TestInspect(t *testing.T) {
	c, _ := synthetic.ShapeConfig("tiny-gsm")
	in := checkpoint.Inspect(synthetic.RandomSource(c, backend.BF16, 1))
	if in.Parameters != 14163328 || in.Bytes != 2*14163328 || in.Tensors != 90 || !in.QKNorm || in.QKVBias {
		t.Errorf("inspection %+v", in)
	}
	if want := []checkpoint.DTypeUse{{DType: "bf16", Tensors: 90, Parameters: 14163328, Bytes: 2 * 14163328}}; !reflect.DeepEqual(in.DTypes, want) {
		t.Errorf("dtypes %+v, want %+v", in.DTypes, want)
	}
	if want := []checkpoint.KVUse{{DType: "f32", BytesPerToken: 8192}, {DType: "bf16", BytesPerToken: 4096}, {DType: "int8", BytesPerToken: 2176}}; !reflect.DeepEqual(in.KV, want) {
		t.Errorf("kv %+v, want %+v", in.KV, want)
	}
	if want := (checkpoint.MemoryNeed{Context: 4096, KVDType: "bf16", KV: 4096 * 4096, Total: 2*14163328 + 4096*4096}); len(in.Memory) != 3 || in.Memory[1] != want {
		t.Errorf("memory %+v, want %+v second", in.Memory, want)
	}
}

func TestInspectHybrid(t *testing.T) {
	c, err := checkpoint.OpenFolder("../model/testdata/golden/qwen3-5-moe-tiny")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := checkpoint.Inspect(c)
	// Three layers: states of 4 heads, a log of 16 rows of keys, deltas and decays, and the
	// rows before the convolution of these and of three before them.
	if want := (checkpoint.DeltaUse{Layers: 3, KeyHeads: 2, ValueHeads: 4, KeyDim: 32, ValueDim: 16, StateBytes: 3 * 4 * (4*32*16 + 16*(2*32+4*16+4) + (16+3)*192), LogRows: 16}); in.Delta == nil || *in.Delta != want {
		t.Errorf("delta %+v, want %+v", in.Delta, want)
	}
	if !in.Drafts || !in.TieEmbeddings || !in.QKNorm || in.KV[1].BytesPerToken != 2*2*64*2 || in.Experts.SharedIntermediateSize != 32 {
		t.Errorf("inspection %+v", in)
	}
	if m := in.Memory[0]; m.Total != in.Bytes+in.Delta.StateBytes+m.KV {
		t.Errorf("memory %+v", m)
	}
	// A token reads the head that its embedding is, two of eight experts of the trunk, and
	// nothing of the head for drafts. Norms take 4 bytes an element, all else 2.
	var want, drafts int64
	for _, name := range c.Names() {
		x, _ := c.Tensor(name)
		switch {
		case strings.HasPrefix(name, "mtp."):
			drafts += int64(x.Bytes())
		case strings.Contains(name, ".experts."):
			want += int64(x.Bytes()) / 4
		default:
			want += int64(x.Bytes())
		}
	}
	if d := in.DraftHead; d == nil || d.Bytes != drafts || d.KVBytesPerToken != in.KV[1].BytesPerToken {
		t.Errorf("a head for drafts of %d bytes: %+v", drafts, d)
	}
	if in.Experts.ReadBytes != want {
		t.Errorf("a token reads %d bytes, want %d", in.Experts.ReadBytes, want)
	}
	if x, ok := c.Tensor("model.visual.patch_embed.proj.weight"); ok {
		t.Errorf("a tensor of images is there: %v", x.Shape)
	}
}
