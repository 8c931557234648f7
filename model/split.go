package model

import (
	"fmt"
	"strings"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/quant"
)

// splitOf is how several devices share a tensor (Megatron-LM, arXiv 1909.08053,
// section 3): heads of attention and inner columns of the MLP are cut, so that
// o and down sum over what each device has. Norms, the embedding and the biases
// of o and down are whole.
func splitOf(name string) backend.Split {
	if name == "lm_head.weight" {
		return backend.SplitOutputs
	}
	module, _ := strings.CutSuffix(name, ".weight")
	bias := false
	if module == name {
		module, bias = strings.CutSuffix(name, ".bias")
	}
	switch module[strings.LastIndexByte(module, '.')+1:] {
	case "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj":
		return backend.SplitOutputs
	case "o_proj", "down_proj":
		if !bias {
			return backend.SplitInputs
		}
	}
	return backend.SplitNone
}

// checkDevices reports whether n devices can share a model: whole heads, and
// whole groups or blocks of what o and down take.
func checkDevices(src checkpoint.Source, n int) error {
	if n <= 1 {
		return nil
	}
	err := sharedBy(src, n)
	if err == nil {
		return nil
	}
	var fits []string
	for k := 1; k <= src.Config().KVHeads; k++ {
		if sharedBy(src, k) == nil {
			fits = append(fits, fmt.Sprint(k))
		}
	}
	return fmt.Errorf("%d GPUs cannot share this model: %w; it runs on %s", n, err, strings.Join(fits, ", "))
}

// sharedBy tells why n devices cannot share a model.
func sharedBy(src checkpoint.Source, n int) error {
	c := src.Config()
	for _, d := range []struct {
		what  string
		count int
	}{{"KV heads", c.KVHeads}, {"heads", c.Heads}, {"inner columns", c.IntermediateSize}} {
		if d.count%n != 0 {
			return fmt.Errorf("%d %s do not divide by %d", d.count, d.what, n)
		}
	}
	for _, name := range src.Names() {
		if splitOf(name) != backend.SplitInputs {
			continue
		}
		if t, ok := src.Tensor(name); ok && len(t.Shape) == 2 {
			if err := t.CheckInputs(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// DeviceBytes is what the weights of a source take on each of n devices, types
// without kernels there converted, as quant.Convert does with exact.
func DeviceBytes(src checkpoint.Source, n int, exact bool) (bytes int64) {
	for _, name := range src.Names() {
		t, ok := src.Tensor(name)
		if !ok {
			continue
		}
		whole := quant.ConvertedBytes(t, exact)
		if splitOf(name) != backend.SplitNone {
			whole = (whole + n - 1) / n
		}
		bytes += int64(whole)
	}
	return bytes
}
