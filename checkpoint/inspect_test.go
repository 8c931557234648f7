package checkpoint_test

import (
	"reflect"
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
