package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestArrange(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"", ""},
		{"--help", "--help"},
		{"-v", "-v"},
		{"generate|hello", "generate|--|hello"},
		{"generate|hello|--mode|ar", "generate|--mode|ar|--|hello"},
		{"generate|--mode=ar|hello|-n|5|--stats", "generate|--mode=ar|-n|5|--stats|--|hello"},
		{"generate|-", "generate|--|-"},
		{"generate|--json|-|--raw", "generate|--json|--raw|--|-"},
		{"generate|--|-5 + 3", "generate|--|-5 + 3"},
		{"generate|--stats|--|--mode", "generate|--stats|--|--mode"},
		{"generate|--entropy-threshold|-1|x", "generate|--entropy-threshold|-1|--|x"},
		{"generate|--stop|--|x", "generate|--stop|--|--|x"},
		{"generate|hello|--help", "generate|--help"},
		{"generate|help", "generate|--|help"},
		{"run|hello", "run|--|hello"},
		{"eval|gsm8k|--limit|3", "eval|gsm8k|--limit|3|--"},
		{"eval|--help", "eval|--help"},
		{"eval", "eval"},
		{"help", "--help"},
		{"help|eval|gsm8k", "eval|gsm8k|--help"},
	} {
		got, err := arrange(newApp(nil, io.Discard, io.Discard), append([]string{"windrow"}, fields(test.in)...))
		if err != nil || !slices.Equal(got[1:], fields(test.want)) {
			t.Errorf("%s: got %s (%v), want %s", test.in, strings.Join(got[1:], "|"), err, test.want)
		}
	}
}

func TestArrangeRefuses(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"genrate|hello", `unknown command "genrate", did you mean generate?`},
		{"--mode|ar|generate", "unknown flag --mode before the command"},
		{"eval|gsm", `eval: unknown command "gsm", did you mean gsm8k?`},
		{"eval|--version", "eval: unknown flag --version"},
		{"help|nothing", `help: unknown command "nothing"`},
		{"generate|hello|--nope", "generate: unknown flag --nope; put '--' before a prompt that starts with '-'"},
		{"generate|hello|--temprature|1", "generate: unknown flag --temprature, did you mean --temperature?"},
		{"generate|-5 + 3", `the argument "-5 + 3" starts with '-' but is no flag; put '--' before`},
		{"generate|hello|--mode", "flag --mode needs a value"},
		{"bench|--rows", "flag --rows needs a value"},
	} {
		_, err := arrange(newApp(nil, io.Discard, io.Discard), append([]string{"windrow"}, fields(test.in)...))
		var usage *usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want a usage error with %q", test.in, err, test.want)
		}
	}
}

func fields(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "|")
}

// FuzzArrange: whatever the arguments, they come back rearranged or refused,
// and none is lost.
func FuzzArrange(f *testing.F) {
	for _, s := range []string{"generate|hello|--mode|ar", "eval|gsm8k|--limit|3", "generate|--|-x", "help|chat", "--", "generate|-n", "generate||"} {
		f.Add(s)
	}
	app := newApp(nil, io.Discard, io.Discard)
	f.Fuzz(func(t *testing.T, s string) {
		in := strings.Split(s, "|")
		got, err := arrange(app, append([]string{"windrow"}, in...))
		if err != nil || len(got) < 2 {
			return
		}
		switch strings.Trim(got[len(got)-1], "-") {
		case "help", "h", "version", "v": // asked for that alone
			return
		}
		for _, arg := range in {
			if !slices.Contains(got, arg) {
				t.Errorf("%q: %q is lost in %q", in, arg, got)
			}
		}
	})
}
