package server

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"windrow/answer"
	"windrow/decoder"
)

// openedTemplate is that of a model whose answers begin inside of reasoning.
const openedTemplate = `{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}` +
	`{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}`

// TestThinkingBudget: reasoning ends after so many tokens, in ar and in verified alike,
// greedy and sampled; a large budget changes nothing.
func TestThinkingBudget(t *testing.T) {
	m := open(t)
	m.Tokenizer = tokens(t, openedTemplate)
	h := httptest.NewServer(New(m, Options{}))
	defer h.Close()
	thought := func(content string) string {
		var blocks []any
		if err := json.Unmarshal([]byte(content), &blocks); err != nil {
			t.Fatal(err)
		}
		s, _ := at(blocks, 0, "thinking").(string)
		return s
	}
	say := func(more string) string {
		w, data := ask(t, h, "POST", "/v1/messages", `{"messages":[{"role":"user","content":"Maya has 4 crates with 12 apples each. How many apples?"}],"max_tokens":80,"seed":7,`+more+`}`)
		if w.StatusCode != 200 {
			t.Fatalf("%s: %s", more, data)
		}
		return text(object(t, data)["content"])
	}
	end, err := m.Tokenizer.Encode("\n" + answer.ThinkClose)
	if err != nil {
		t.Fatal(err)
	}
	for _, heat := range []string{`"temperature":0`, `"temperature":0.9`} {
		free := say(heat + `,"mode":"ar"`)
		if strings.Contains(free, `"text"`) {
			t.Errorf("without a budget it ends by itself: %s", free)
		}
		for _, budget := range []int{1, 12, 79 - len(end)} {
			thinking := fmt.Sprintf(`,"thinking":{"type":"enabled","budget_tokens":%d}`, budget)
			want := say(heat + `,"mode":"ar"` + thinking)
			for _, more := range []string{`,"mode":"verified","window":4`, `,"mode":"verified","window":16`, `,"mode":"verified"`} {
				if got := say(heat + more + thinking); got != want {
					t.Errorf("%s%s%s: %s, ar %s", heat, more, thinking, got, want)
				}
			}
			if budget > 70 {
				continue // what is left is for the tag
			}
			if !strings.Contains(want, `"text"`) || thought(want) == "" || len(thought(want)) >= len(thought(free)) || !strings.HasPrefix(thought(free), thought(want)) {
				t.Errorf("%s, %d tokens: %s; free %s", heat, budget, want, free)
			}
		}
	}
	if w, data := ask(t, h, "POST", "/v1/messages", `{"messages":[{"role":"user","content":"a"}],"max_tokens":80,"mode":"wedlm","thinking":{"type":"enabled","budget_tokens":9}}`); w.StatusCode != 400 {
		t.Errorf("wedlm: %s", data)
	}
}

// TestBudgetConstraint: what counts, and what ends the counting.
func TestBudgetConstraint(t *testing.T) {
	tok := tokens(t, openedTemplate)
	encode := func(s string) []int32 {
		ids, err := tok.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	end := encode("\n" + answer.ThinkClose)
	thought := encode("so 4 times 12 is 48")
	forces := func(c decoder.Constraint) bool {
		dst := make([]uint64, 64)
		if err := c.Mask(dst); err != nil {
			t.Fatal(err)
		}
		all := 0
		for id := range int32(4096) {
			allowed := dst[id/64]>>(id%64)&1 == 1
			if allowed != c.Allowed(id) {
				t.Fatalf("id %d: mask %t, Allowed %t", id, allowed, c.Allowed(id))
			}
			if allowed {
				all++
			}
		}
		// Where it is not told that all may follow a device would look for those that do.
		if open := c.(decoder.Opener).Open(); open != (all == 4096) {
			t.Fatalf("%d ids are allowed, open %t", all, open)
		}
		return all == 1
	}
	for _, c := range []struct {
		name     string
		thinking answer.Thinking
		text     string
		budget   int
		forced   bool
	}{
		{"opened", answer.ThinkingOpened, "", len(thought), true},
		{"opened, one more", answer.ThinkingOpened, "", len(thought) + 1, false},
		{"opened and ended", answer.ThinkingOpened, "a</think>", 1000, false},
		{"tagged", answer.ThinkingTagged, "<think>", 1, true},
		{"tagged after space", answer.ThinkingTagged, "\n <think>\n", 1, true},
		{"tagged and ended", answer.ThinkingTagged, "<think>a</think>", 1000, false},
		{"none", answer.ThinkingTagged, "an answer", 1, false},
	} {
		made, err := newBudget(tok, c.thinking, c.budget, nil)
		if err != nil {
			t.Fatal(err)
		}
		at := made.Clone()
		for _, id := range append(encode(c.text), thought...) {
			if forces(at) {
				break
			}
			if !at.Advance(id) {
				t.Fatalf("%s: token %d is refused", c.name, id)
			}
		}
		if forces(at) != c.forced {
			t.Errorf("%s: forced %t", c.name, forces(at))
			continue
		}
		if !c.forced {
			continue
		}
		other := at.Clone()
		for i, id := range end {
			if !forces(at) || at.Advance(id+1) || !at.Advance(id) {
				t.Fatalf("%s: token %d of the end", c.name, i)
			}
		}
		if forces(at) || !forces(other) {
			t.Errorf("%s: after the end forced %t, its clone %t", c.name, forces(at), forces(other))
		}
	}
	// Another constraint goes on behind it.
	inner := &counting{}
	at, err := newBudget(tok, answer.ThinkingOpened, 2, inner)
	if err != nil {
		t.Fatal(err)
	}
	at = at.Clone()
	for _, id := range append(thought[:2:2], end...) {
		at.Advance(id)
	}
	if at.(decoder.Opener).Open() {
		t.Error("open before a constraint that is not")
	}
	if got := at.(*budget).inner.(*counting).n; got != 2+len(end) || inner.n != 0 {
		t.Errorf("the constraint behind it took %d tokens", got)
	}
}

// counting is a constraint that allows all.
type counting struct{ n int }

func (c *counting) Mask(dst []uint64) error { dst[0] = 3; return nil }
func (c *counting) Allowed(int32) bool      { return true }
func (c *counting) Advance(int32) bool      { c.n++; return true }
func (c *counting) Clone() decoder.Constraint {
	d := *c
	return &d
}
