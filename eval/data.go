package eval

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

//go:embed data/*.jsonl
var embedded embed.FS

// GSM8KLicense is the MIT notice under which the GSM8K problems in this
// package (test set and few-shot examples) are distributed.
//
//go:embed data/GSM8K-LICENSE.txt
var GSM8KLicense string

// Problem is one question with its worked answer.
type Problem struct {
	// Index is the problem's place in its data set, from 0.
	Index    int
	Question string
	// Answer is the worked answer, Reference its final number in canonical
	// form (see Answer).
	Answer, Reference string
}

// Dataset is a list of problems, in file order.
type Dataset struct {
	Name     string
	Problems []Problem
}

// dataFiles are the data sets in the binary.
var dataFiles = map[string]string{
	"gsm8k":   "data/gsm8k_test.jsonl",
	"tinygsm": "data/tinygsm_test.jsonl",
}

// Load returns a data set by name: "gsm8k" (the full GSM8K test set, 1319
// problems), "tinygsm" (500 held-out problems of the kind the default model
// was trained on), or the path of a .jsonl file whose lines have the fields
// "question" and "answer". Errors name the file and the line.
func Load(name string) (*Dataset, error) {
	if file, ok := dataFiles[name]; ok {
		return loadEmbedded(name, file)
	}
	if !strings.HasSuffix(name, ".jsonl") {
		return nil, fmt.Errorf("data %q: want gsm8k, tinygsm or the path of a .jsonl file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	defer f.Close()
	problems, err := ReadProblems(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Dataset{Name: name, Problems: problems}, nil
}

func loadEmbedded(name, file string) (*Dataset, error) {
	f, err := embedded.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	problems, err := ReadProblems(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &Dataset{Name: name, Problems: problems}, nil
}

// ReadProblems parses JSON lines with the fields "question" (text) and
// "answer" (text or a number); other fields are ignored, blank lines skipped.
// An answer without any number is an error, for it could never be matched.
func ReadProblems(r io.Reader) ([]Problem, error) {
	var problems []Problem
	lines := newLineReader(r)
	for {
		line, _, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if lines.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		p, err := parseProblem(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", lines.number, err)
		}
		p.Index = len(problems)
		problems = append(problems, p)
	}
	if len(problems) == 0 {
		return nil, errors.New("no problems: want lines with \"question\" and \"answer\"")
	}
	return problems, nil
}

func parseProblem(line []byte) (Problem, error) {
	var raw struct {
		Question *string         `json:"question"`
		Answer   json.RawMessage `json:"answer"`
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return Problem{}, jsonError(err)
	}
	if raw.Question == nil || strings.TrimSpace(*raw.Question) == "" {
		return Problem{}, errors.New(`field "question": missing or empty`)
	}
	if len(raw.Answer) == 0 || string(raw.Answer) == "null" {
		return Problem{}, errors.New(`field "answer": missing`)
	}
	p := Problem{Question: *raw.Question}
	var number json.Number
	if json.Unmarshal(raw.Answer, &p.Answer) != nil {
		if json.Unmarshal(raw.Answer, &number) != nil {
			return Problem{}, errors.New(`field "answer": want text or a number`)
		}
		p.Answer = number.String()
	}
	if p.Reference = Answer(p.Answer); p.Reference == "" {
		return Problem{}, errors.New(`field "answer": no number in it`)
	}
	return p, nil
}

// jsonError says in one line what is wrong with a line of JSON, without Go's
// type names.
func jsonError(err error) error {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		if t.Field == "" {
			return fmt.Errorf("want a JSON object, found %s", t.Value)
		}
		// Embedded structs are no part of the path: lines have no such names.
		field := t.Field[strings.LastIndexByte(t.Field, '.')+1:]
		return fmt.Errorf("field %q: found %s", field, t.Value)
	}
	return fmt.Errorf("not JSON: %w", err)
}

// Slice returns the problems from offset on, at most limit of them (0: all).
// They keep their Index.
func (d *Dataset) Slice(offset, limit int) ([]Problem, error) {
	if offset < 0 || offset >= len(d.Problems) {
		return nil, fmt.Errorf("offset %d: %s has %d problems", offset, d.Name, len(d.Problems))
	}
	if limit < 0 {
		return nil, fmt.Errorf("limit %d: want 0 (all) or more", limit)
	}
	rest := d.Problems[offset:]
	if limit > 0 && limit < len(rest) {
		rest = rest[:limit]
	}
	return rest, nil
}

// Hash identifies the problems, whatever file they came from.
func (d *Dataset) Hash() string {
	h := sha256.New()
	for _, p := range d.Problems {
		fmt.Fprintf(h, "%d %d %s%s", len(p.Question), len(p.Answer), p.Question, p.Answer)
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// MaxFewShot is how many worked examples are embedded.
const MaxFewShot = 8

// FewShotExamples returns the first n problems of GSM8K's training set,
// MaxFewShot at most. The calculator annotations (<<48/2=24>>) are removed: they were made
// for a tool, and a model that copies them spends tokens on them.
func FewShotExamples(n int) ([]Problem, error) {
	if n < 0 || n > MaxFewShot {
		return nil, fmt.Errorf("few-shot %d: want 0 to %d", n, MaxFewShot)
	}
	if n == 0 {
		return nil, nil
	}
	d, err := loadEmbedded("gsm8k train", "data/gsm8k_train_first8.jsonl")
	if err != nil {
		return nil, err
	}
	for i := range d.Problems {
		d.Problems[i].Answer = withoutAnnotations(d.Problems[i].Answer)
	}
	return d.Problems[:n], nil
}

func withoutAnnotations(s string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "<<")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		if _, after, closed := strings.Cut(rest, ">>"); closed {
			s = after
			continue
		}
		b.WriteString("<<")
		s = rest
	}
}
