package convert

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/quant"
)

const goldens = "../model/testdata/golden/"

// A hybrid is written so that it is read back as it was: what is never quantised has
// the same bits, norms though they are stored as what they are above 1; experts that lie
// in one tensor are stacked as MLX has them.
func TestQuantizeHybrids(t *testing.T) {
	for _, name := range []string{"qwen3-next-tiny", "qwen3-next-long", "qwen3-5-text-tiny", "qwen3-5-moe-tiny", "qwen3-5-drafts"} {
		src, err := checkpoint.OpenFolder(goldens + name)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		p := Policy{Bits: 4, Group: 32, Selective: true, Experts: 8}
		dst := filepath.Join(t.TempDir(), "q")
		report, err := Quantize(t.Context(), src, dst, p, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := checkpoint.OpenFolder(dst)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer got.Close()
		memory, _, err := Quantized(t.Context(), src, p)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := got.Config().String(), src.Config().String(); a != b {
			t.Errorf("%s: read back as %s, was %s", name, a, b)
		}
		if report.BytesBefore != fileBytes(src) {
			t.Errorf("%s: %d bytes before, want %d", name, report.BytesBefore, fileBytes(src))
		}
		for _, c := range report.Classes {
			if expert := strings.HasPrefix(c.Class, "experts."); expert != (c.Format == "affine8 g32") {
				t.Errorf("%s: %s in %s", name, c.Class, c.Format)
			}
		}
		never := 0
		for _, n := range got.Names() {
			x, _ := got.Tensor(n)
			m, ok := memory.Tensor(n)
			if !ok || m.DType != x.DType || fmt.Sprint(m.Shape) != fmt.Sprint(x.Shape) || !bytes.Equal(m.Data, x.Data) || !bytes.Equal(m.Scales, x.Scales) {
				t.Errorf("%s: %s is %v %v, in memory %v %v", name, n, x.DType, x.Shape, m.DType, m.Shape)
			}
			kept := strings.HasSuffix(n, "norm.weight") || strings.Contains(n, "_norm_") || strings.Contains(n, "conv1d") || strings.HasSuffix(n, "A_log") || strings.HasSuffix(n, "dt_bias") ||
				strings.HasSuffix(n, "mlp.gate.weight") || strings.HasSuffix(n, "shared_expert_gate.weight") || n == "lm_head.weight" || strings.HasSuffix(n, "embed_tokens.weight")
			kept = kept || x.Shape[len(x.Shape)-1]%p.Group != 0
			if kept == x.DType.Affine() {
				t.Errorf("%s: %s is %v", name, n, x.DType)
			}
			expert := strings.Contains(n, ".experts.") || strings.Contains(n, "switch_mlp")
			if !kept && expert != (x.DType == backend.Affine8) {
				t.Errorf("%s: %s is %v", name, n, x.DType)
			}
			if kept {
				never++
				was, ok := src.Tensor(n)
				if !ok || was.DType != x.DType || fmt.Sprint(was.Shape) != fmt.Sprint(x.Shape) || !bytes.Equal(was.Data, x.Data) {
					t.Errorf("%s: %s is %v %v, was %v %v", name, n, x.DType, x.Shape, was.DType, was.Shape)
				}
			}
		}
		if never < 20 {
			t.Errorf("%s: only %d tensors were kept", name, never)
		}
	}
}

func fileBytes(src checkpoint.Source) (n int64) {
	for _, name := range src.Names() {
		t, _ := src.Tensor(name)
		n += int64(t.Bytes())
	}
	return n
}

// Gates and ups that lie in one tensor are parted: each row of each expert is where it
// belongs.
func TestQuantizeFusedExperts(t *testing.T) {
	src, err := checkpoint.OpenFolder(goldens + "qwen3-5-moe-tiny")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	q, _, err := Quantized(t.Context(), src, Policy{Bits: 8, Group: 32})
	if err != nil {
		t.Fatal(err)
	}
	const at = "model.layers.2.mlp."
	both, _ := src.Tensor(at + "experts.gate_up_proj") // [8, 2 · 32, 64]
	if _, there := q.Tensor(at + "experts.gate_up_proj"); there {
		t.Error("gates and ups are there together, too")
	}
	for first, name := range []string{"gate_proj", "up_proj"} {
		x, ok := q.Tensor(at + "switch_mlp." + name + ".weight")
		if !ok || !slices.Equal(x.Shape, []int{8, 32, 64}) || x.Check() != nil {
			t.Fatalf("%s: %v, %v", name, x.Shape, ok)
		}
		got, want := make([]float32, 64), make([]float32, 64)
		for e := range 8 {
			for o := range 32 {
				quant.Row(got, &x, e*32+o)
				quant.Row(want, &both, e*64+first*32+o)
				for i := range want {
					if d := got[i] - want[i]; d > 0.005 || d < -0.005 { // steps of 8 bits over ±0.5
						t.Fatalf("%s: expert %d, row %d, %d: %v, want %v", name, e, o, i, got[i], want[i])
					}
				}
			}
		}
	}
	// Where all of a stack is kept, it stays as it was; where a half is, it is parted.
	for _, tc := range []struct {
		policy Policy
		want   string
	}{
		{Policy{Bits: 4, Group: 32, Experts: 16}, "experts.gate_up_proj bf16 [8 64 64] experts.down_proj bf16 [8 64 32]"},
		{Policy{Bits: 4, Group: 32, Exclude: []string{"up_proj"}}, "switch_mlp.gate_proj.weight affine4 [8 32 64] switch_mlp.up_proj.weight bf16 [8 32 64] switch_mlp.down_proj.weight affine4 [8 64 32]"},
		{Policy{Bits: 4, Group: 64}, "switch_mlp.gate_proj.weight affine4 [8 32 64] switch_mlp.up_proj.weight affine4 [8 32 64] experts.down_proj bf16 [8 64 32]"},
	} {
		q, report, err := Quantized(t.Context(), src, tc.policy)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, n := range q.Names() {
			if rest, ok := strings.CutPrefix(n, at); ok && !strings.HasPrefix(rest, "gate.") && !strings.HasPrefix(rest, "shared") {
				x, _ := q.Tensor(n)
				list = append(list, fmt.Sprint(rest, " ", x.DType, " ", x.Shape))
			}
		}
		if got := strings.Join(list, " "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.policy.Name(), got, tc.want)
		}
		if report.BytesBefore != fileBytes(src) {
			t.Errorf("%s: %d bytes before, want %d", tc.policy.Name(), report.BytesBefore, fileBytes(src))
		}
	}
	if _, err := (Policy{Bits: 4, Group: 64, Experts: 5}).Rules(); err == nil || err.Error() != "quantisation of experts to 5 bits: want 4, 8 or 16" {
		t.Errorf("experts in 5 bits: %v", err)
	}
	if got := (Policy{Bits: 4, Group: 64, Selective: true, Experts: 8}).Name(); got != "4-bit selective g64, experts 8-bit" {
		t.Errorf("name %s", got)
	}
	if n, more := len(Sensitivity(DefaultPolicy(), &checkpoint.Config{})), len(Sensitivity(DefaultPolicy(), src.Config())); more != n+1 { // two of DeltaNet; a tied head
		t.Errorf("%d kinds of layers, of a dense model %d", more, n)
	}
}

// reordered is a source whose value heads lie in the order of GGUF files.
type reordered struct {
	checkpoint.Source
	config *checkpoint.Config
}

func (r reordered) Config() *checkpoint.Config { return r.config }

// A model with value heads in GGUF's order would be taken for one of the other order by
// whoever reads it as a folder.
func TestQuantizeRefusesTiledHeads(t *testing.T) {
	src, err := checkpoint.OpenFolder(goldens + "qwen3-5-drafts")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	config := *src.Config()
	delta := *config.Delta
	delta.Tiled = true
	config.Delta = &delta
	_, _, err = Quantized(t.Context(), reordered{src, &config}, DefaultPolicy())
	if err == nil || err.Error() != "the value heads of its DeltaNets lie in the order of GGUF files: want the model's Hugging Face folder" {
		t.Errorf("error %v", err)
	}
}
