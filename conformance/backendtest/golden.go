package backendtest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/model"
	"windrow/models/tinygsm"
)

// testGolden runs the golden models, prompt and windows, from a cold cache and
// from a cached prefix, in one chunk and in small ones.
//
// The golden tensors are f32 arithmetic on bf16 weights, so exact backends are
// held to 2e-5 (layers add up their rounding) and those that round activations
// to bf16 to 2 %.
func testGolden(t *testing.T, golden string, open func(t *testing.T) backend.Backend, models []string) {
	for _, c := range []struct {
		name, file string
	}{
		{"qwen3-untied", "golden.safetensors"},
		{"qwen3-yarn", "golden.safetensors"},
		{"tiny-gsm", "golden.safetensors"},
		{"tiny-gsm", "prompt.safetensors"},
	} {
		if testing.Short() && c.name != "qwen3-yarn" || len(models) > 0 && !slices.Contains(models, c.name) {
			continue // under an emulator: minutes
		}
		t.Run(c.name+" "+c.file, func(t *testing.T) {
			src := Source(t, golden, c.name)
			b := open(t)
			defer b.Close()
			m, err := model.Load(b, src)
			if err != nil {
				t.Fatal(err)
			}
			file := goldenFile(t, golden, c.name, c.file)
			types := kvTypes(b)
			if c.name != "qwen3-yarn" && os.Getenv("WINDROW_SLOW") == "" {
				types = types[:1]
			}
			for _, kvType := range types {
				tol := 2e-5
				switch {
				case kvType == backend.KVInt8:
					tol = 6e-2
				case kvType == backend.KVBF16, !b.Features().Exact:
					tol = 2e-2
				case kvType == backend.KVF16:
					tol = 3e-3
				}
				for _, chunk := range []int{0, 7} {
					if chunk != 0 && kvType != backend.KVF32 {
						continue // chunking has nothing to do with the storage's type
					}
					deviations, err := m.Validate(context.Background(), file, model.ValidateOptions{KV: kvType, Chunk: chunk})
					if err != nil {
						t.Fatal(err)
					}
					for _, d := range deviations {
						if !(d.RelativeNorm <= tol) {
							t.Errorf("kv %v, chunk %d: %s: relative norm %.3g (largest difference %.3g), want at most %.3g", kvType, chunk, d.Entry, d.RelativeNorm, d.MaxDifference, tol)
						}
						if tol < 1e-4 && d.ArgmaxEqual != 0 && d.ArgmaxEqual != d.Rows {
							t.Errorf("kv %v, chunk %d: %s: argmax equal in %d of %d rows", kvType, chunk, d.Entry, d.ArgmaxEqual, d.Rows)
						}
					}
					if len(deviations) == 0 {
						t.Error("nothing was compared")
					}
				}
			}
		})
	}
}

// Tiny is the embedded model, tiny-gsm.
func Tiny(t testing.TB) checkpoint.Source { return Source(t, "", "tiny-gsm") }

// Source opens a golden model; tiny-gsm's weights are those of the embedded
// model, and a test that wants them is skipped where the binary has none.
// tiny-gsm-next's lie in the repository's models.
func Source(t testing.TB, golden, name string) checkpoint.Source {
	t.Helper()
	if name == "tiny-gsm" {
		if !tinygsm.Available {
			t.Skip("built without the embedded model")
		}
		c, err := checkpoint.New(tinygsm.Files())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	folder := filepath.Join(golden, name)
	if name == "tiny-gsm-next" {
		folder = filepath.Join(golden, "..", "..", "..", "models", "tinygsmnext")
	}
	c, err := checkpoint.OpenFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
