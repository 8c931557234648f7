package eval

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
)

var answers = []struct{ text, want string }{
	{"", ""},
	{"no number", ""},
	{"####", ""},
	{"#### ", ""},
	{"It is 5.\n#### 45", "45"},
	{"#### 45 chairs", "45"},
	{"#### 45.", "45"},
	{"#### $45.00", "45"},
	{"#### 2,125", "2125"},
	{"#### 1,450,000", "1450000"},
	{"#### 12,34,567", "1234567"},
	{"#### 1{,}000", "1000"},
	{"#### 5.0", "5"},
	{"#### 5", "5"},
	{"#### 05", "5"},
	{"#### 0.50", "0.5"},
	{"#### .5", "0.5"},
	{"#### $.50", "0.5"},
	{"#### -.50", "-0.5"},
	{"#### -5", "-5"},
	{"#### −5", "-5"},
	{"#### -$5", "-5"},
	{"#### $-5", "-5"},
	{"#### -0", "0"},
	{"#### -0.0", "0"},
	{"#### 000", "0"},
	{"#### 100", "100"},
	{"#### 30%", "30"},
	{"#### 5 * 9 = 45", "45"},
	{"#### 16-5", "5"},
	{"#### (-5)", "-5"},
	{"(3)-5", "5"},
	{"pages 10-15", "15"},
	{"##### 7", "7"},
	{"#### 45\n\nQuestion: there are 20 more", "45"},
	{"#### 1\n#### 2", "2"},
	{"####\n45", "45"},
	{"It is 45.\n####", "45"},
	{"#### none, so 12", "12"},
	{"16 - 3 - 4 = <<16-3-4=9>>9 eggs", "9"},
	{"the answer is **72**.", "72"},
	{`\boxed{72}`, "72"},
	{`\boxed{-72}`, "-72"},
	{`\$1,250.00`, "1250"},
	{"45 m^2", "45"},
	{"45km", "45"},
	{"USD45", "45"},
	{"1,2,3", "3"},
	{"-1,2", "2"},
	{"1,2345", "2345"},
	{"1234,567", "567"},
	{"1,234.50", "1234.5"},
	{"1.2.3", "3"},
	{"so...5", "5"},
	{"The end.5 apples", "5"},
	{"3.", "3"},
	{"3,", "3"},
	{"3, 4", "4"},
	{"1/2", "2"},
	{"5\xff", "5"},
	{"-\xff5", "5"},
	{"^7", ""},
	{"99999999999999999999999999.10", "99999999999999999999999999.1"},
}

func TestAnswer(t *testing.T) {
	for _, test := range answers {
		if got := Answer(test.text); got != test.want {
			t.Errorf("Answer(%q) = %q, want %q", test.text, got, test.want)
		}
	}
}

// TestAnswerOfGSM8K compares with the expression that the data set's authors
// publish, on every reference.
func TestAnswerOfGSM8K(t *testing.T) {
	official := regexp.MustCompile(`#### (\-?[0-9\.\,]+)`)
	for _, name := range []string{"gsm8k", "tinygsm"} {
		d, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Problems {
			m := official.FindStringSubmatch(p.Answer)
			if m == nil {
				t.Fatalf("%s %d: the official expression finds nothing", name, p.Index)
			}
			want, _ := new(big.Rat).SetString(strings.ReplaceAll(m[1], ",", ""))
			got, ok := new(big.Rat).SetString(p.Reference)
			if !ok || got.Cmp(want) != 0 {
				t.Errorf("%s %d: %s, want %s", name, p.Index, p.Reference, m[1])
			}
		}
	}
}

func TestCorrect(t *testing.T) {
	for _, test := range []struct {
		prediction, reference string
		want                  bool
	}{
		{"5", "5", true}, {"5", "6", false}, {"", "5", false}, {"", "", false},
	} {
		if got := Correct(test.prediction, test.reference); got != test.want {
			t.Errorf("Correct(%q, %q) = %v", test.prediction, test.reference, got)
		}
	}
}

var canonicalNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$`)

func FuzzAnswer(f *testing.F) {
	for _, test := range answers {
		f.Add(test.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n := Answer(text)
		if n == "" {
			return
		}
		if !canonicalNumber.MatchString(n) || n == "-0" {
			t.Fatalf("Answer(%q) = %q: not canonical", text, n)
		}
		if again := Answer("#### " + n); again != n {
			t.Fatalf("Answer of %q is %q", n, again)
		}
	})
}
