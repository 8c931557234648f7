package model_test

import (
	"encoding/binary"
	"math"
	"strconv"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/quant"
	"windrow/rope"
)

// reference computes a forward the naive way, in float64, without cache,
// batches or kernels: the whole sequence of (token, position) pairs at once,
// plain causal. It returns the logits of every row.
func reference(t testing.TB, src checkpoint.Source, tokens, positions []int32) [][]float64 {
	t.Helper()
	c := src.Config()
	w := func(name string) []float64 {
		x, ok := src.Tensor(name)
		if !ok {
			return nil
		}
		out := make([]float64, len(x.Data)/x.DType.Size())
		for i := range out {
			switch x.DType {
			case backend.BF16:
				out[i] = float64(quant.BF16ToF32(binary.LittleEndian.Uint16(x.Data[2*i:])))
			case backend.F16:
				out[i] = float64(quant.F16ToF32(binary.LittleEndian.Uint16(x.Data[2*i:])))
			default:
				out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(x.Data[4*i:])))
			}
		}
		return out
	}
	project := func(x []float64, name string) []float64 {
		weight, bias := w(name+".weight"), w(name+".bias")
		y := make([]float64, len(weight)/len(x))
		for o := range y {
			for k, v := range x {
				y[o] += v * weight[o*len(x)+k]
			}
			if bias != nil {
				y[o] += bias[o]
			}
		}
		return y
	}
	norm := func(x, weight []float64) []float64 {
		if weight == nil {
			return x
		}
		var s float64
		for _, v := range x {
			s += v * v
		}
		inv := 1 / math.Sqrt(s/float64(len(x))+float64(c.RMSNormEps))
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = v * inv * weight[i]
		}
		return y
	}
	table, err := rope.New(c.Rope)
	if err != nil {
		t.Fatal(err)
	}
	half := c.HeadDim / 2
	cos, sin := make([]float32, half), make([]float32, half)
	rotate := func(x []float64, position int32) []float64 {
		table.Fill(cos, sin, []int32{position})
		y := make([]float64, len(x))
		for i := range half {
			a, b, co, si := x[i], x[i+half], float64(cos[i]), float64(sin[i])
			y[i], y[i+half] = a*co-b*si, b*co+a*si
		}
		return y
	}
	embed := w("model.embed_tokens.weight")
	x := make([][]float64, len(tokens))
	for r, id := range tokens {
		x[r] = append([]float64(nil), embed[int(id)*c.HiddenSize:int(id+1)*c.HiddenSize]...)
	}
	for l := range c.Layers {
		at := "model.layers." + strconv.Itoa(l) + "."
		keys, values := make([][]float64, len(x)), make([][]float64, len(x))
		for r := range x {
			h := norm(x[r], w(at+"input_layernorm.weight"))
			q, k, v := project(h, at+"self_attn.q_proj"), project(h, at+"self_attn.k_proj"), project(h, at+"self_attn.v_proj")
			values[r] = v
			for i := range c.KVHeads {
				keys[r] = append(keys[r], rotate(norm(k[i*c.HeadDim:(i+1)*c.HeadDim], w(at+"self_attn.k_norm.weight")), positions[r])...)
			}
			var attended []float64
			for i := range c.Heads {
				query := rotate(norm(q[i*c.HeadDim:(i+1)*c.HeadDim], w(at+"self_attn.q_norm.weight")), positions[r])
				kv := i / (c.Heads / c.KVHeads) * c.HeadDim
				var sum float64
				out := make([]float64, c.HeadDim)
				for j := 0; j <= r; j++ {
					var s float64
					for d, v := range query {
						s += v * keys[j][kv+d]
					}
					p := math.Exp(s / math.Sqrt(float64(c.HeadDim)))
					sum += p
					for d := range out {
						out[d] += p * values[j][kv+d]
					}
				}
				for d := range out {
					attended = append(attended, out[d]/sum)
				}
			}
			for i, v := range project(attended, at+"self_attn.o_proj") {
				x[r][i] += v
			}
		}
		for r := range x {
			h := norm(x[r], w(at+"post_attention_layernorm.weight"))
			gate, up := project(h, at+"mlp.gate_proj"), project(h, at+"mlp.up_proj")
			for i, g := range gate {
				gate[i] = g / (1 + math.Exp(-g)) * up[i]
			}
			for i, v := range project(gate, at+"mlp.down_proj") {
				x[r][i] += v
			}
		}
	}
	head := "lm_head"
	if c.TieEmbeddings {
		head = "model.embed_tokens"
	}
	logits := make([][]float64, len(x))
	for r := range x {
		logits[r] = project(norm(x[r], w("model.norm.weight")), head)
	}
	return logits
}
