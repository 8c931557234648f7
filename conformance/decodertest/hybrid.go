package decodertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/decoder"
	"windrow/model"
)

// HybridProblem is a prompt for tiny-gsm-next, and what ar answers in f32.
type HybridProblem struct {
	Prompt []int32 `json:"prompt"`
	AR     []int32 `json:"ar"`
}

// HybridProblems are those of tiny-gsm-next; golden is the folder of golden models.
func HybridProblems(t testing.TB, golden string) (list []HybridProblem) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(golden, "tiny-gsm-next", "traces.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("no problems")
	}
	return list
}

// Hybrid loads tiny-gsm-next, with its head for drafts where the backend runs it.
func Hybrid(t testing.TB, golden string, b backend.Backend) *model.Model {
	t.Helper()
	options := []model.Option{model.Barring(vocabSize, maskID)}
	if b.Features().HiddenRows {
		options = append(options, model.DraftHead(4))
	}
	m, err := model.Load(b, backendtest.Source(t, golden, "tiny-gsm-next"), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// RunHybrid has tiny-gsm-next answer its first problems: with exact arithmetic ar's tokens
// are the reference's, and verified's are ar's in any case, in far fewer forwards.
func RunHybrid(t *testing.T, golden string, b backend.Backend, problems int) {
	m := &margins{Model: Hybrid(t, golden, b)}
	var masks, head decoder.Stats
	for i, p := range HybridProblems(t, golden)[:problems] {
		o := decoder.DefaultOptions()
		o.MaxTokens, o.StopIDs = 150, []int32{4094, 4092}
		o.Vocabulary = decoder.Vocabulary{Size: vocabSize, MaskID: maskID}
		o.Mode = decoder.AR
		ar := m.generate(t, p.Prompt, o, backend.KVF32, decoder.Hooks{})
		if b.Features().Exact && !slices.Equal(ar.Tokens, p.AR) {
			t.Errorf("problem %d: ar %v\nwant %v", i, ar.Tokens, p.AR)
		}
		for _, window := range []int{16, 5, 40} {
			o.Mode, o.Window = decoder.Verified, window
			sum := m.generate(t, p.Prompt, o, backend.KVF32, decoder.Hooks{})
			if !slices.Equal(sum.Tokens, ar.Tokens) {
				t.Errorf("problem %d, window %d: verified %v\nar       %v", i, window, sum.Tokens, ar.Tokens)
			}
			if window == 16 {
				masks.Add(sum.Stats)
			}
		}
		if !m.Drafts() {
			continue
		}
		o.Draft, o.Window, o.Drafts = decoder.DraftMTP, 16, 3
		o.Head = &decoder.HeadDrafts{Engine: m.Model, Width: m.Config().HiddenSize}
		sum := m.generate(t, p.Prompt, o, backend.KVF32, decoder.Hooks{})
		if !slices.Equal(sum.Tokens, ar.Tokens) {
			t.Errorf("problem %d, the model's own head: verified %v\nar       %v", i, sum.Tokens, ar.Tokens)
		}
		head.Add(sum.Stats)
	}
	t.Logf("%d problems, %.2f tokens per forward by masks, %.2f by its own head", problems, masks.TokensPerForward(), head.TokensPerForward())
	// A mean: a short answer alone takes three forwards.
	if rate := masks.TokensPerForward(); problems >= 4 && rate < 8 {
		t.Errorf("verified takes %.2f tokens per forward, want at least 8", rate)
	}
	// Without a map of its states, which takes more problems to learn.
	if rate := head.TokensPerForward(); problems >= 4 && m.Drafts() && rate < 2.2 {
		t.Errorf("verified takes %.2f tokens per forward of drafts of its own head, want at least 2.2", rate)
	}
}
