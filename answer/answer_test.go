package answer_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"windrow/answer"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is a text of testdata. A file has many, each after a line
//
//	=== NAME [form=json|coder] [thinking=tagged|opened] [limit] [stop="…"]…
//
// and without its last newline.
type sample struct {
	name, text string
	how        answer.Ending
	options    answer.Options
}

func testOptions() answer.Options {
	return answer.Options{Tools: json.RawMessage(testTools), NewID: func(i int) string { return fmt.Sprint("id", i) }}
}

func readSamples(t testing.TB, file string) (samples []sample) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq("\n"+string(data), "\n=== ") {
		head, text, ok := strings.Cut(part, "\n")
		if !ok {
			continue
		}
		fields := strings.Fields(head)
		s := sample{name: fields[0], text: text, options: testOptions()}
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			switch {
			case f == "form=json":
				s.options.Form = answer.FormJSON
			case f == "form=coder":
				s.options.Form = answer.FormCoder
			case f == "thinking=tagged":
				s.options.Thinking = answer.ThinkingTagged
			case f == "thinking=opened":
				s.options.Thinking = answer.ThinkingOpened
			case f == "limit":
				s.how = answer.Limit
			case key == "stop":
				stop, err := strconv.Unquote(value)
				if err != nil {
					t.Fatalf("%s: %s: %v", file, s.name, err)
				}
				s.options.Stop = append(s.options.Stop, stop)
			default:
				t.Fatalf("%s: %s: what is %q?", file, s.name, f)
			}
		}
		samples = append(samples, s)
	}
	// The last newline of a file belongs to no sample.
	last := &samples[len(samples)-1]
	last.text = strings.TrimSuffix(last.text, "\n")
	return samples
}

func allSamples(t testing.TB) (samples []sample) {
	t.Helper()
	files, _ := filepath.Glob("testdata/*.txt")
	for _, f := range files {
		samples = append(samples, readSamples(t, f)...)
	}
	if len(samples) < 100 {
		t.Errorf("%d samples, want 100 at least", len(samples))
	}
	return samples
}

// parse gives the text in pieces that end at the given places.
func parse(t testing.TB, s sample, cuts ...int) []answer.Event {
	t.Helper()
	p, err := answer.New(s.options)
	if err != nil {
		t.Fatal(err)
	}
	var events []answer.Event
	from := 0
	for _, to := range append(cuts, len(s.text)) {
		events = append(events, p.Write(s.text[from:to])...)
		from = to
	}
	events = append(events, p.Close(s.how)...)
	if more := append(p.Write("more"), p.Close(s.how)...); more != nil {
		t.Errorf("%s: after its end: %v", s.name, more)
	}
	for _, e := range events {
		if !utf8.ValidString(e.Text) {
			t.Errorf("%s, cut at %v: half a character in %q", s.name, cuts, e.Text)
		}
	}
	return merge(events)
}

// show is an event as golden files have it.
func show(e answer.Event) string {
	switch e.Kind {
	case answer.CallBegin:
		return fmt.Sprintf("%v %d %s %q", e.Kind, e.Index, e.ID, e.Name)
	case answer.Arguments:
		return fmt.Sprintf("%v %d %q", e.Kind, e.Index, e.Text)
	case answer.CallEnd:
		if e.Cut {
			return fmt.Sprintf("%v %d, cut", e.Kind, e.Index)
		}
		return fmt.Sprintf("%v %d", e.Kind, e.Index)
	case answer.CallBroken:
		return fmt.Sprintf("%v %d", e.Kind, e.Index)
	case answer.Finish:
		if e.Stop != "" {
			return fmt.Sprintf("%v %s at %q", e.Kind, e.Reason, e.Stop)
		}
		return fmt.Sprintf("%v %s", e.Kind, e.Reason)
	}
	return fmt.Sprintf("%v %q", e.Kind, e.Text)
}

func list(events []answer.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("    " + show(e) + "\n")
	}
	return b.String()
}

// TestSamples compares each sample's events with the golden file.
func TestSamples(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		var b strings.Builder
		for _, s := range readSamples(t, file) {
			fmt.Fprintf(&b, "%s\n%s", s.name, list(parse(t, s)))
		}
		golden := strings.TrimSuffix(file, ".txt") + ".golden"
		if *update {
			if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		got, wanted := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
		name := ""
		for i := range max(len(got), len(wanted)) {
			if i < len(got) && !strings.HasPrefix(got[i], " ") {
				name = got[i]
			}
			if i >= len(got) || i >= len(wanted) || got[i] != wanted[i] {
				t.Errorf("%s: %s: line %d differs; go test -update writes it anew\n got %s\nwant %s", golden, name, i+1, strings.Join(got[i:min(i+5, len(got))], "\n"), strings.Join(wanted[min(i, len(wanted)):min(i+5, len(wanted))], "\n"))
				break
			}
		}
	}
}

// TestReference compares each sample, and each of its beginnings, with what the
// reference says of it.
func TestReference(t *testing.T) {
	for _, s := range allSamples(t) {
		whole := s.text
		for n := range len(whole) + 1 {
			s.text = whole[:n]
			for _, s.how = range []answer.Ending{answer.Ended, answer.Limit} {
				if got, want := parse(t, s), reference(s.text, s.how, s.options); !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: %q:\n got\n%swant\n%s", s.name, s.text, list(got), list(want))
				}
			}
		}
	}
}

// TestSplits cuts each sample at every place, at every byte, and short ones at
// every two places.
func TestSplits(t *testing.T) {
	for _, s := range allSamples(t) {
		want := parse(t, s)
		check := func(cuts ...int) {
			if got := parse(t, s, cuts...); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: cut at %v:\n got\n%swant\n%s", s.name, cuts, list(got), list(want))
			}
		}
		var each []int
		for i := range len(s.text) + 1 {
			check(i)
			each = append(each, i)
			if len(s.text) > 80 {
				continue
			}
			for j := i + 1; j <= len(s.text); j++ {
				check(i, j)
			}
		}
		check(each...)
	}
}
