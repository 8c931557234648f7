package server

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"windrow/decoder"
	"windrow/schedule"
)

// TestStepsOfAnswers: steps tell the whole answer, in every mode, and change nothing of
// the other chunks.
func TestStepsOfAnswers(t *testing.T) {
	h := httptest.NewServer(New(open(t), Options{}))
	defer h.Close()
	for _, mode := range []string{"ar", "wedlm", "verified"} {
		window := ""
		if mode == "verified" { // else it adapts to what forwards take, once that is known, and there are as many as it likes
			window = `,"window":16`
		}
		for _, more := range []string{`"max_tokens":40`, `"max_tokens":7`, `"stop":["* "]`, `"temperature":1.2,"n":2`} {
			body := fmt.Sprintf(`{"messages":[{"role":"user","content":"Maya has 4 crates with 12 apples each. She gives 5 apples to each of 6 friends. How many apples are left?"}],"mode":%q,"seed":7,"stream":true,"timings_per_token":true,%s`, mode, more) + window
			_, plain := ask(t, h, "POST", "/v1/chat/completions", body+"}")
			_, data := ask(t, h, "POST", "/v1/chat/completions", body+`,"windrow":{"steps":true}}`)
			want, _ := chunks(t, plain)
			list, done := chunks(t, data)
			content, text := map[float64]string{}, map[float64]string{}
			forwards := map[float64]float64{}
			for _, c := range list {
				steps, isSteps := at(c, "windrow", "steps").([]any)
				if piece, ok := at(c, "choices", 0, "delta", "content").(string); ok {
					content[at(c, "choices", 0, "index").(float64)] += piece
				}
				if !isSteps {
					continue
				}
				if n := len(at(c, "choices").([]any)); n != 0 {
					t.Errorf("%d choices beside steps", n)
				}
				choice := at(c, "windrow", "choice").(float64)
				for i, s := range steps {
					forwards[choice]++
					if got := at(s, "forward"); got != forwards[choice] {
						t.Errorf("%s %s: step %d is forward %v, want %v", mode, more, i, got, forwards[choice])
					}
					checkStep(t, mode, s)
					if visible := committedText(s); !strings.Contains(more, "stop") && at(s, "text") != visible {
						t.Errorf("%s %s: a step's text is %q, its tokens are %q", mode, more, at(s, "text"), visible)
					}
					text[choice] += at(s, "text").(string)
				}
				rest, _ := at(c, "windrow", "rest").(string)
				text[choice] += rest
			}
			if !done || len(forwards) == 0 {
				t.Fatalf("%s %s: %s", mode, more, data)
			}
			plainContent := map[float64]string{}
			for _, c := range want {
				if piece, ok := at(c, "choices", 0, "delta", "content").(string); ok {
					plainContent[at(c, "choices", 0, "index").(float64)] += piece
				}
				if strings.Contains(fmt.Sprint(c), "steps") {
					t.Errorf("steps that nobody asked for: %v", c)
				}
			}
			// A generation that a stop string ended may be one forward further.
			n := at(list[len(list)-1], "timings", "forwards").(float64)
			if n != forwards[0] && !(strings.Contains(more, "stop") && n > forwards[0]) {
				t.Errorf("%s %s: %v steps, %v forwards", mode, more, forwards[0], n)
			}
			for i, c := range content {
				if c != plainContent[i] {
					t.Errorf("%s %s: %q with steps, %q without", mode, more, c, plainContent[i])
				}
				// A step's text goes on to where its tokens end, the content to the stop string.
				if !strings.HasPrefix(text[i], c) || !strings.Contains(more, "stop") && text[i] != c {
					t.Errorf("%s %s: the steps say %q, the answer is %q", mode, more, text[i], c)
				}
			}
		}
	}
}

// committedText is the text of a step's slots that became permanent.
func committedText(s any) (text string) {
	for _, slot := range at(s, "slots").([]any) {
		if state := at(slot, "state"); state == "committed" || state == "accepted" {
			text += at(slot, "text").(string)
		}
	}
	return strings.ReplaceAll(text, "<|im_end|>", "")
}

// checkStep checks what the form of a step promises.
func checkStep(t *testing.T, mode string, s any) {
	t.Helper()
	committed, states := 0, map[string]int{}
	slots := at(s, "slots").([]any)
	for i, slot := range slots {
		state := at(slot, "state").(string)
		states[state]++
		if state == "committed" || state == "accepted" {
			if committed++; committed != i+1 {
				t.Errorf("slot %d is %s behind one that is not: %v", i, state, s)
			}
		}
		if _, mask := at(slot, "entropy").(float64); mask && state != "mask" {
			t.Errorf("slot %d: an entropy of %s", i, state)
		}
	}
	if at(s, "tokens") != float64(committed) || at(s, "rows") != float64(len(slots)) {
		t.Errorf("%d committed of %d: %v", committed, len(slots), s)
	}
	if at(s, "pass", "rows").(float64) < float64(len(slots)) || at(s, "pass", "sequences").(float64) < 1 || at(s, "ms").(float64) <= 0 {
		t.Errorf("pass: %v", s)
	}
	for i, fill := range at(s, "next").([]any) {
		state := at(fill, "state")
		if want := map[string]string{"ar": "causal", "wedlm": "filled", "verified": "draft"}[mode]; state != want && !(mode == "verified" && i == 0 && state == "causal") {
			t.Errorf("%s: %v", mode, fill)
		}
	}
	if mode != "verified" && states["accepted"]+states["struck"] > 0 || mode == "ar" && len(slots) != 1 {
		t.Errorf("%s: %v", mode, states)
	}
}

// TestStepsRefused: what cannot be is said.
func TestStepsRefused(t *testing.T) {
	h := serving(t, &script{pieces: []string{"x"}}, Options{})
	for body, param := range map[string]string{
		`"windrow":{"steps":true}`:                              "windrow.steps",
		`"windrow":{"steps":1},"stream":true`:                   "windrow.steps",
		`"windrow":{"steps":true,"speed":1},"stream":true`:      "windrow.speed",
		`"windrow":[],"stream":true`:                            "windrow",
		`"windrow":{"steps":true},"stream":false,"model":"abc"`: "windrow.steps",
	} {
		w, data := ask(t, h, "POST", "/v1/chat/completions", "{"+hello+","+body+"}")
		if w.StatusCode != 400 || at(object(t, data), "error", "param") != param {
			t.Errorf("%s: %d %s", body, w.StatusCode, data)
		}
	}
	if w, data := ask(t, h, "POST", "/v1/chat/completions", "{"+hello+`,"windrow":{"steps":false}}`); w.StatusCode != 200 {
		t.Errorf("%s", data)
	}
}

// TestStepsMerged: steps wait for 1/30 s, an event holds a bounded number, and what was
// left out is counted.
func TestStepsMerged(t *testing.T) {
	r := httptest.NewRecorder()
	out := (&Server{o: Options{WriteTime: time.Minute}}).newEvents(r)
	// An event was sent just now, or later than that: 1/30 s passes soon on a busy machine.
	f := &film{tokenizer: tokens(t, toolTemplate), mode: decoder.WeDLM, sent: time.Now().Add(time.Hour)}
	slots := make([]decoder.Slot, 100)
	steps := func(n, dropped int) (list []oneStep) {
		for i := range n {
			e := schedule.Step{Step: decoder.Step{Slots: slots, Entropy: make([]float32, 100)}}
			if i == 0 {
				e.Dropped = dropped
			}
			list = append(list, f.step(e))
		}
		return list
	}
	f.show(out, head{}, 0, steps(3, 0), false)
	if r.Body.Len() > 0 {
		t.Errorf("sent at once: %.200s", r.Body)
	}
	f.sent = time.Now().Add(-stepsEvery)
	f.show(out, head{}, 0, steps(2, 0), false)
	list, _ := chunks(t, r.Body.Bytes())
	if n := len(at(list[0], "windrow", "steps").([]any)); n != 5 || at(list[0], "windrow", "dropped") != 0.0 {
		t.Errorf("%d steps in %v", n, list[0]["windrow"])
	}
	r.Body.Reset()
	f.show(out, head{}, 0, steps(1000, 10), true)
	list, _ = chunks(t, r.Body.Bytes())
	shown, dropped, last := 0, 0.0, any(nil)
	for i, c := range list {
		some := at(c, "windrow", "steps").([]any)
		shown, dropped, last = shown+len(some), dropped+at(c, "windrow", "dropped").(float64), at(some[len(some)-1], "forward")
		if i > 0 && at(c, "windrow", "dropped") != 0.0 {
			t.Errorf("event %d: %v dropped", i, at(c, "windrow", "dropped"))
		}
	}
	if shown != mostSlots/(100+stepSlots) || dropped != float64(1010-shown) || last != 1015.0 {
		t.Errorf("%d steps up to %v, %v dropped", shown, last, dropped)
	}
	for line := range strings.Lines(r.Body.String()) {
		if len(line) > 64<<10 {
			t.Errorf("an event of %d bytes", len(line))
		}
	}
}
