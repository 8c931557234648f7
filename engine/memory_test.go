package engine

import (
	"math"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
)

// TestSequenceMemory: what a sequence takes of the budget is what inspection says of its
// states, and keys and values of whole pages, those of a head for drafts among them: in a
// step, twice the states while a prompt of several forwards is computed. docs/hybrids.md.
func TestSequenceMemory(t *testing.T) {
	for folder, rows := range map[string]int{"../models/tinygsmnext": 32, "../model/testdata/golden/qwen3-next-tiny": 16, "../model/testdata/golden/qwen3-5-moe-tiny": 16} {
		src, err := OpenCheckpoint(t.Context(), folder)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		in := checkpoint.Inspect(src)
		if in.Delta == nil || in.Delta.LogRows != rows {
			t.Fatalf("%s: %+v, want a log of %d rows", folder, in.Delta, rows)
		}
		e, err := OpenSource(t.Context(), "m", src, Options{Backend: CPU, Threads: 1, KV: backend.KVBF16, StateCache: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		c, err := e.NewCache(t.Context(), 400, 200)
		if err != nil {
			t.Fatal(err)
		}
		token := in.KV[1].BytesPerToken
		if in.KV[1].DType != "bf16" {
			t.Fatalf("keys and values in %s", in.KV[1].DType)
		}
		if in.DraftHead != nil {
			token += in.DraftHead.KVBytesPerToken
		}
		near := func(what string, states int64) {
			t.Helper()
			pages := int64(c.Base()+backend.PageTokens-1) / backend.PageTokens
			want := states*in.Delta.StateBytes + pages*backend.PageTokens*token
			if used, _ := e.Budget().Used(); math.Abs(float64(used-want)) > .05*float64(want) {
				t.Errorf("%s, %s: %d bytes are taken, want %d", folder, what, used, want)
			}
		}
		forward := func(n int) {
			t.Helper()
			if _, err := e.Forward(t.Context(), batch(wantLast, span{c, make([]int32, n)})); err != nil {
				t.Fatal(err)
			}
			if err := c.Commit(n); err != nil {
				t.Fatal(err)
			}
		}
		forward(64)
		near("a prompt of one forward", 1)
		forward(64)
		near("a prompt of two", 2)
		forward(1)
		forward(1)
		near("steps", 1)
		// A context of the whole length, as inspect lists it.
		whole := in.Memory[len(in.Memory)-2]
		if whole.KVDType != "bf16" || whole.Total != in.Bytes+whole.KV+in.Delta.StateBytes {
			t.Errorf("%s: %+v", folder, whole)
		}
		e.FreeCache(c)
		if used, _ := e.Budget().Used(); used != 0 {
			t.Errorf("%s: %d bytes are left", folder, used)
		}
	}
}
