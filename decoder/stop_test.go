package decoder

import (
	"strings"
	"testing"
	"unicode/utf8"
)

var stopCases = []struct {
	name  string
	text  string
	stops []string
	want  string
	stop  bool
}{
	{"none", "abc", nil, "abc", false},
	{"whole", "ab###cd", []string{"###"}, "ab", true},
	{"at the start", "###", []string{"###"}, "", true},
	{"a beginning only", "ab##", []string{"###"}, "ab##", false},
	{"a false start", "a##b###", []string{"###"}, "a##b", true},
	{"overlapping itself", "aabaabaac", []string{"aabaac"}, "aab", true},
	{"the one complete first", "xabcd", []string{"abcd", "bc"}, "xa", true},
	{"the longest that ends together", "xabc", []string{"bc", "abc", "c"}, "x", true},
	{"characters of several bytes", "naïve é", []string{"é"}, "naïve ", true},
	{"half a character in common", "è", []string{"é"}, "è", false},
	{"line end", "Answer: 4\nQuestion", []string{"\nQuestion:", "\n\n"}, "Answer: 4\nQuestion", false},
}

// feed pushes text in pieces of whole characters, cut as cuts says.
func feed(text string, stops []string, cuts []byte) (visible string, stopped bool) {
	m := stopMatcher{stops: stops}
	var b strings.Builder
	for n := 0; len(text) > 0; n++ {
		size := 1
		if len(cuts) > 0 {
			size = min(len(text), int(cuts[n%len(cuts)])%8)
		}
		for size < len(text) && !utf8.RuneStart(text[size]) {
			size++
		}
		v, s := m.push(text[:size])
		b.WriteString(v)
		if s {
			return b.String(), true
		}
		if text = text[size:]; n > 10000 {
			return b.String(), false // cuts are all zero
		}
	}
	b.WriteString(m.flush())
	return b.String(), false
}

// whole is what the matcher must show: text up to the stop string that is
// complete first.
func whole(text string, stops []string) (string, bool) {
	for end := 0; end <= len(text); end++ {
		cut := -1
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) && (cut < 0 || end-len(s) < cut) {
				cut = end - len(s)
			}
		}
		if cut >= 0 {
			return text[:cut], true
		}
	}
	return text, false
}

func TestStopMatcher(t *testing.T) {
	for _, c := range stopCases {
		t.Run(c.name, func(t *testing.T) {
			for _, cuts := range []string{"", "\x02", "\x03", "\x07", "\x01\x00\x04"} {
				if got, stop := feed(c.text, c.stops, []byte(cuts)); got != c.want || stop != c.stop {
					t.Errorf("cut by %q: %q, %v; want %q, %v", cuts, got, stop, c.want, c.stop)
				}
			}
		})
	}
}

// TestStopMatcherHoldsLittle: only an end that may begin a stop string waits.
func TestStopMatcherHoldsLittle(t *testing.T) {
	m := stopMatcher{stops: []string{"\n\n", "###"}}
	for _, c := range [][2]string{{"one", "one"}, {"\n", ""}, {"two#", "\ntwo"}, {"#", ""}, {"x", "##x"}} {
		if got, _ := m.push(c[0]); got != c[1] {
			t.Errorf("after %q: %q visible, want %q", c[0], got, c[1])
		}
	}
}

// FuzzStopMatcher: however text is cut, the visible text is the same.
func FuzzStopMatcher(f *testing.F) {
	for _, c := range stopCases {
		f.Add(c.text, strings.Join(c.stops, "|"), []byte{1, 3, 2})
	}
	f.Fuzz(func(t *testing.T, text, joined string, cuts []byte) {
		if len(text) > 200 || !utf8.ValidString(text) {
			return
		}
		for i := range cuts {
			cuts[i] = 1 + cuts[i]%7
		}
		var stops []string
		for s := range strings.SplitSeq(joined, "|") {
			if s != "" && len(stops) < 5 {
				stops = append(stops, s)
			}
		}
		got, stop := feed(text, stops, cuts)
		if want, wantStop := whole(text, stops); got != want || stop != wantStop {
			t.Errorf("%q, stops %q, cuts %v: %q, %v; want %q, %v", text, stops, cuts, got, stop, want, wantStop)
		}
	})
}
