package eval

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadEmbedded(t *testing.T) {
	for _, test := range []struct {
		name            string
		problems        int
		index           int
		start, wantLast string
	}{
		{"gsm8k", 1319, 0, "Janet’s ducks lay", "18"},
		{"gsm8k", 1319, 1, "A robe takes", "3"},
		{"tinygsm", 500, 0, "A hall has 5 rows", "45"},
	} {
		d, err := Load(test.name)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Problems) != test.problems {
			t.Errorf("%s: %d problems, want %d", test.name, len(d.Problems), test.problems)
		}
		p := d.Problems[test.index]
		if !strings.HasPrefix(p.Question, test.start) || p.Reference != test.wantLast || p.Index != test.index {
			t.Errorf("%s %d: %+v", test.name, test.index, p)
		}
	}
	if !strings.HasPrefix(GSM8KLicense, "MIT License") {
		t.Error("the MIT notice is missing")
	}
}

func TestLoadErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.jsonl")
	for _, test := range []struct{ name, want string }{
		{"gsm9k", `data "gsm9k": want gsm8k, tinygsm or the path of a .jsonl file`},
		{missing, "no such file"},
	} {
		if _, err := Load(test.name); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Load(%q): %v, want %q", test.name, err, test.want)
		}
	}
	path := filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(path, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || err.Error() != path+`: line 1: field "question": missing or empty` {
		t.Errorf("bad file: %v", err)
	}
}

var problemTests = []struct{ text, want string }{
	{`{"question":"a","answer":"1"}`, ""},
	{"\ufeff" + `{"question":"a","answer":"1","more":[1]}` + "\r\n\n" + `{"question":"b","answer":2.50}` + "\n", ""},
	{"", "no problems"},
	{"\n \n", "no problems"},
	{"{", "line 1: not JSON"},
	{"[]", "line 1: want a JSON object, found array"},
	{"\n5", "line 2: want a JSON object, found number"},
	{`{"question":5,"answer":"1"}`, `line 1: field "question": found number`},
	{`{"question":" ","answer":"1"}`, `line 1: field "question": missing or empty`},
	{`{"question":"a"}`, `line 1: field "answer": missing`},
	{`{"question":"a","answer":null}`, `line 1: field "answer": missing`},
	{`{"question":"a","answer":[1]}`, `line 1: field "answer": want text or a number`},
	{`{"question":"a","answer":"many"}`, `line 1: field "answer": no number in it`},
	{`{"question":"a","answer":"1"} x`, "line 1: not JSON"},
}

func TestReadProblems(t *testing.T) {
	for _, test := range problemTests {
		problems, err := ReadProblems(strings.NewReader(test.text))
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%q: %v", test.text, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%q: %v, want %q", test.text, err, test.want)
		case test.want != "" && strings.Contains(err.Error(), "\n"):
			t.Errorf("%q: more than one line: %v", test.text, err)
		case test.want == "" && problems[len(problems)-1].Reference == "":
			t.Errorf("%q: no reference", test.text)
		}
	}
}

// endless is a file without a newline: /dev/zero under another name.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestReadProblemsLongLine(t *testing.T) {
	if _, err := ReadProblems(endless{}); err == nil || !strings.Contains(err.Error(), "line 1: longer than 8388608 bytes") {
		t.Errorf("endless line: %v", err)
	}
	long := `{"question":"` + strings.Repeat("a", 200_000) + `","answer":"1"}` + "\n"
	problems, err := ReadProblems(strings.NewReader(long + long))
	if err != nil || len(problems) != 2 || len(problems[1].Question) != 200_000 {
		t.Errorf("lines longer than the buffer: %d problems, %v", len(problems), err)
	}
}

func FuzzReadProblems(f *testing.F) {
	for _, test := range problemTests {
		f.Add([]byte(test.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		problems, err := ReadProblems(bytes.NewReader(data))
		if (err == nil) != (len(problems) > 0) {
			t.Fatalf("%d problems, %v", len(problems), err)
		}
		for i, p := range problems {
			if p.Index != i || p.Question == "" || p.Reference == "" {
				t.Fatalf("problem %d: %+v", i, p)
			}
		}
	})
}

func TestSlice(t *testing.T) {
	d := &Dataset{Name: "d", Problems: []Problem{{Index: 0}, {Index: 1}, {Index: 2}}}
	for _, test := range []struct {
		offset, limit, first, n int
		err                     string
	}{
		{0, 0, 0, 3, ""}, {1, 0, 1, 2, ""}, {1, 1, 1, 1, ""}, {2, 9, 2, 1, ""},
		{3, 0, 0, 0, "offset 3: d has 3 problems"},
		{-1, 0, 0, 0, "offset -1"},
		{0, -1, 0, 0, "limit -1"},
	} {
		got, err := d.Slice(test.offset, test.limit)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("Slice(%d, %d): %v", test.offset, test.limit, err)
			}
			continue
		}
		if err != nil || len(got) != test.n || got[0].Index != test.first {
			t.Errorf("Slice(%d, %d) = %v, %v", test.offset, test.limit, got, err)
		}
	}
}

func TestFewShotExamples(t *testing.T) {
	shots, err := FewShotExamples(8)
	if err != nil || len(shots) != 8 {
		t.Fatalf("%d examples, %v", len(shots), err)
	}
	want := "Natalia sold 48/2 = 24 clips in May.\nNatalia sold 48+24 = 72 clips altogether in April and May.\n#### 72"
	if shots[0].Answer != want {
		t.Errorf("first example: %q", shots[0].Answer)
	}
	for _, n := range []int{-1, 9} {
		if _, err := FewShotExamples(n); err == nil {
			t.Errorf("%d examples: no error", n)
		}
	}
	for _, test := range []struct{ text, want string }{
		{"", ""}, {"a<<1>>b<<2>>", "ab"}, {"a<<1", "a<<1"}, {"<<<<1>>", ""},
	} {
		if got := withoutAnnotations(test.text); got != test.want {
			t.Errorf("withoutAnnotations(%q) = %q", test.text, got)
		}
	}
}
