package house

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocsNameNoCommits: figures are told by their day. A commit's hash changes when it is
// rebased, and the reader of a clone finds nothing by the old one.
func TestDocsNameNoCommits(t *testing.T) {
	t.Parallel()
	eachDoc(t, func(name, text string) {
		for _, c := range commitsNamed(text) {
			t.Error(name + ":" + c)
		}
	})
}

// elsewhere are commits of other projects.
var elsewhere = []string{"ee0a4510"} // huggingface_hub

var hash = regexp.MustCompile(`\b[0-9a-f]{7,40}\b`)

// commitsNamed lists what looks like the hash of a commit in a Markdown text, with the
// numbers of its lines, but for indented code.
func commitsNamed(text string) (found []string) {
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "    ") {
			continue
		}
		for _, h := range hash.FindAllString(line, -1) {
			if strings.ContainsAny(h, "0123456789") && strings.ContainsAny(h, "abcdef") && !slices.Contains(elsewhere, h) {
				found = append(found, fmt.Sprintf("%d: %s", i+1, h))
			}
		}
	}
	return found
}

func TestCommitsNamed(t *testing.T) {
	t.Parallel()
	text := "before (097486a), 1234567 rows, deadbeef\n| 38af866, ee0a4510 |\n\n    see 2bec4e7\n"
	if got, want := commitsNamed(text), []string{"1: 097486a", "2: 38af866"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
