package cuda

import (
	"bytes"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/model"
	"windrow/synthetic"
)

// TestGroupCopiedHeads: a hybrid, a mixture and a dense model of two KV heads on four GPUs,
// two of which have each, by their golden logits.
func TestGroupCopiedHeads(t *testing.T) {
	models, chunks := []string{"tiny-gsm-next"}, []int{16}
	if !testing.Short() {
		models = append(models, "qwen3-moe-tiny", "qwen3-yarn")
	}
	if slowTier() {
		chunks = []int{0, 1, 7, 16}
	}
	for _, name := range models {
		t.Run(name, func(t *testing.T) { groupGolden(t, 4, name, chunks...) })
	}
}

// TestGroupCopiesDrafts: a head for drafts keeps its keys beside the model's in copies, too.
func TestGroupCopiesDrafts(t *testing.T) {
	if testing.Short() {
		t.Skip("four emulated GPUs: leave -short out")
	}
	config := family("qwen3_5_text", 4, false)
	config.KVHeads, config.MTPLayers = 2, 1
	backendtest.RunHeadBeside(t, openGroupOf(t, false, 4), synthetic.RandomSource(config, backend.BF16, 6), 40)
}

// TestGroupCopies: of four GPUs two have each of two KV heads. Pages take twice the memory
// of one GPU's, are exported with each head once, as one GPU has them, and after an import,
// by a fork and behind one forwards have the bits that they had.
func TestGroupCopies(t *testing.T) {
	const prompt, rows = backend.PageTokens, 3
	src := synthetic.RandomSource(small(false), backend.BF16, 5)
	type kept struct {
		used int64
		page []byte
		next []model.Result
	}
	walk := func(b backend.Backend, theirs []byte) (y kept) {
		t.Helper()
		m, c := load(t, b, src)
		defer m.Close()
		forwardAll(t, m, c, 0, prompt)
		y.used, _ = b.Budget().Used()
		if want := prompt * m.KVBytesPerToken(backend.KVBF16); y.used != want || c.Bytes() != want {
			t.Errorf("%d bytes are taken, %d of them by the cache, want %d", y.used, c.Bytes(), want)
		}
		y.page = make([]byte, c.PageBytes())
		if err := c.Export(0, y.page); err != nil {
			t.Fatal(err)
		}
		fork, err := c.Fork(prompt, 256, 64)
		if err != nil {
			t.Fatal(err)
		}
		defer fork.Close()
		y.next = forwardAll(t, m, c, prompt, rows)
		same := func(what string, c *model.Cache) {
			t.Helper()
			for i, r := range forwardAll(t, m, c, prompt, rows) {
				if !slices.Equal(r.Logits, y.next[i].Logits) {
					t.Errorf("row %d has other bits %s", i, what)
				}
			}
		}
		same("in a fork", fork)
		imported := func(page []byte) *model.Cache {
			c, err := m.NewCache(model.CacheOptions{Capacity: 256, MaxRows: 64, DType: backend.KVBF16})
			if err == nil {
				err = c.Import(page)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			return c
		}
		same("behind what was imported", imported(y.page))
		if theirs != nil {
			if d := distance(forwardAll(t, m, imported(theirs), prompt, rows), y.next); !(d <= 2e-2) {
				t.Errorf("behind one GPU's keys and values: relative norm %.3g, want at most 2e-2", d)
			}
		}
		return y
	}
	one := openBackend(t, false)
	defer one.Close()
	want := walk(one, nil)
	got := walk(openGroupOf(t, false, 4), want.page)
	if got.used != 2*want.used {
		t.Errorf("four GPUs take %d bytes, want twice the %d of one", got.used, want.used)
	}
	// Before the first sum over the GPUs, in layer 0, bits are those of one.
	if n := len(want.page) / 2; len(got.page) != 2*n || !bytes.Equal(got.page[:n], want.page[:n]) {
		t.Error("exported keys and values of layer 0 are not those of one GPU")
	}
	if d := distance(got.next, want.next); !(d <= 2e-2) {
		t.Errorf("relative norm %.3g, want at most 2e-2", d)
	}
}
