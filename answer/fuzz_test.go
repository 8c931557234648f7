package answer_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"windrow/answer"
)

// FuzzAnswer compares a text cut at random with what the reference says of it,
// and checks what must hold of any answer. kind gives the options, and stop the
// stop strings, one a line.
func FuzzAnswer(f *testing.F) {
	for _, s := range allSamples(f) {
		kind := uint8(s.how) | uint8(s.options.Thinking)<<1 | uint8(s.options.Form)<<3
		f.Add(s.text, kind, strings.Join(s.options.Stop, "\n"), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, kind uint8, stop string, seed uint64) {
		s := sample{name: "fuzz", text: text, options: testOptions(), how: answer.Ending(kind & 1)}
		s.options.Thinking = answer.Thinking((kind >> 1 & 3) % 3)
		s.options.Form = answer.Form((kind >> 3) % 3)
		for line := range strings.SplitSeq(stop, "\n") {
			if line != "" && len(s.options.Stop) < 16 {
				s.options.Stop = append(s.options.Stop, string([]rune(line)))
			}
		}
		checkAnswer(t, s, seed)
	})
}

func checkAnswer(t *testing.T, s sample, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	var cuts []int
	for range random.IntN(8) {
		cuts = append(cuts, random.IntN(len(s.text)+1))
	}
	slices.Sort(cuts)
	got, want := parse(t, s, cuts...), reference(s.text, s.how, s.options)
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v\n%q, cut at %v:\n got\n%swant\n%s", s.options, s.text, cuts, list(got), list(want))
	}
	var m answer.Message
	finished := 0
	for _, e := range got {
		m.Add(e)
		if e.Kind == answer.Finish {
			finished++
		}
	}
	if finished != 1 || got[len(got)-1].Kind != answer.Finish {
		t.Errorf("%d ends:\n%s", finished, list(got))
	}
	for _, c := range m.Calls {
		if !c.Cut && (!json.Valid([]byte(c.Arguments)) || strings.Trim(c.Arguments, " \t\r\n")[0] != '{') || c.Arguments == "" || c.Name == "" || c.ID == "" {
			t.Errorf("call %+v of %q", c, s.text)
		}
	}
	if m.Stop == "" && len(m.Calls) == 0 && s.options.Thinking == answer.ThinkingOff && m.Content != string([]rune(s.text)) {
		t.Errorf("content %q of %q", m.Content, s.text)
	}
}

// TestRandomTexts goes through texts made of what the parser looks for, which a
// fuzzer finds slowly.
func TestRandomTexts(t *testing.T) {
	parts := []string{
		"<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>",
		"add>", "now>", "note>", "maybe>", "a>", "x>", "<", ">", "\n", " ", "\t", "text", "null", "1", "é", "🙂", "\xe9", "\xf0\x9f", "STOP", "ST", "{", "}",
		`{"name": "add", "arguments": {"a": 1}}`, `{"name": "now"}`, `{"arguments": {"a": "<tool_call>"}, "name": "f"`, `{"name": "add", "arguments": {"s": "`, `"}}`, `"`, `,`, `:`, `[`, `]`, `\u00e9`, `\"`, `"name"`, `"arguments"`,
		"<function=add>\n<parameter=note>\n", "\n</parameter>\n", "</function>\n</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"", "<tool_call><function=add>", "<parameter=a>1</parameter>",
		strings.Repeat(" ", 64), strings.Repeat("n", 255),
	}
	texts := 40_000
	if testing.Short() {
		texts = 10_000
	}
	random := rand.New(rand.NewPCG(1, 2))
	calls := 0
	for i := range texts {
		var b strings.Builder
		for range 1 + random.IntN(14) {
			b.WriteString(parts[random.IntN(len(parts))])
		}
		s := sample{name: "random", text: b.String(), options: testOptions(), how: answer.Ending(random.IntN(2))}
		s.options.Form = answer.Form(random.IntN(3))
		s.options.Thinking = answer.Thinking(random.IntN(3))
		if random.IntN(3) == 0 {
			s.options.Stop = []string{"STOP", "TS", "\n\n", "🙂<", "ll"}[:1+random.IntN(5)]
		}
		checkAnswer(t, s, uint64(i))
		if t.Failed() {
			return
		}
		calls += strings.Count(list(reference(s.text, s.how, s.options)), "call end")
	}
	if calls < texts/40 {
		t.Errorf("only %d calls in %d texts", calls, texts)
	}
}

// TestStops looks for stop strings that overlap with themselves and each other.
func TestStops(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "aab"[random.IntN(3)]
		}
		return string(b)
	}
	for i := range 20_000 {
		s := sample{name: "stops", text: word(random.IntN(30)), options: testOptions()}
		for range 1 + random.IntN(3) {
			s.options.Stop = append(s.options.Stop, word(1+random.IntN(7)))
		}
		if checkAnswer(t, s, uint64(i)); t.Failed() {
			return
		}
	}
}

// TestBounds goes to the bounds and one past them.
func TestBounds(t *testing.T) {
	long := func(unit string, n int) string { return strings.Repeat(unit, n) }
	for name, c := range map[string]struct {
		form  answer.Form
		text  func(n int) string
		bound int
	}{
		"white space after a value": {answer.FormCoder, func(n int) string {
			return "<tool_call><function=add><parameter=note>x</parameter>" + long(" ", n) + "</function></tool_call>"
		}, 64},
		"a function's name": {answer.FormCoder, func(n int) string { return "<tool_call><function=" + long("f", n) + "></function></tool_call>" }, 256},
		"a parameter's name": {answer.FormCoder, func(n int) string {
			return "<tool_call><function=add><parameter=" + long("p", n) + ">1</parameter></function></tool_call>"
		}, 256},
		"nested lists": {answer.FormJSON, func(n int) string {
			return `<tool_call>{"name": "f", "arguments": {"x": ` + long("[", n-2) + long("]", n-2) + `}}</tool_call>`
		}, 10000},
		"nested objects": {answer.FormJSON, func(n int) string {
			return `<tool_call>{"name": "f", "arguments": ` + long(`{"x":`, n-2) + "{}" + long("}", n-1) + `</tool_call>`
		}, 10000},
	} {
		for _, n := range []int{c.bound, c.bound + 1} {
			s := sample{name: name, text: c.text(n), options: testOptions()}
			s.options.Form = c.form
			m, err := answer.Parse(s.text, s.how, s.options)
			whole := len(m.Calls) == 1 && !strings.Contains(m.Calls[0].Arguments, "</parameter>")
			if err != nil || whole != (n == c.bound) {
				t.Errorf("%s: a whole call at %d: %v, %v; the bound is %d", name, n, whole, err, c.bound)
			}
			if got, want := parse(t, s), reference(s.text, s.how, s.options); !reflect.DeepEqual(got, want) {
				t.Errorf("%s at %d: not what the reference says", name, n)
			}
		}
	}
}
