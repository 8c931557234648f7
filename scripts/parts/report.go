package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// report prints the parts in the order in which they began, what was left out
// by reason, and the counts of tests. It gives 1 where a part failed.
func report(dir string, out io.Writer) int {
	records, err := readAll[record](dir, ".json")
	omitted, err2 := readAll[omission](dir, ".omitted")
	tests, err3 := readAll[counts](dir, ".counts")
	if err := cmp.Or(err, err2, err3); err != nil {
		fmt.Fprintf(os.Stderr, "parts: %v\n", err)
		return 1
	}
	slices.SortFunc(records, func(a, b record) int { return a.Started.Compare(b.Started) })
	code := 0
	fmt.Fprintln(out, "\nHow long each part took, and how much of the processors' time:")
	for _, r := range records {
		verdict := ""
		if r.Failed {
			verdict, code = "  FAILED", 1
		}
		fmt.Fprintf(out, "  %-13s %7.1f s %7.1f s%s\n", r.Name, r.Seconds, r.Processor, verdict)
	}
	if len(omitted) > 0 {
		fmt.Fprintln(out, "\nLeft out, and why:")
		for _, line := range omissionLines(omitted) {
			fmt.Fprintln(out, "  "+line)
		}
	}
	var sum counts
	for _, c := range tests {
		sum.add(c)
	}
	if sum != (counts{}) {
		fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", sum.Passed, sum.Failed, sum.Skipped)
	}
	if len(records) == 0 {
		fmt.Fprintln(out, "no part ran")
		return 1
	}
	return code
}

// omissionLines gives a line for each part and reason, with the tests.
func omissionLines(omitted []omission) (lines []string) {
	type key struct{ part, reason string }
	tests := map[key][]string{}
	var keys []key
	for _, o := range omitted {
		k := key{o.Part, o.Reason}
		if _, ok := tests[k]; !ok {
			keys = append(keys, k)
			tests[k] = nil
		}
		if o.Test == "" {
			continue
		}
		name := strings.TrimPrefix(o.Package, "windrow/") + " " + o.Test
		if !slices.Contains(tests[k], name) {
			tests[k] = append(tests[k], name)
		}
	}
	for _, k := range keys {
		line := k.part + ": " + k.reason
		switch t := tests[k]; {
		case len(t) > 3:
			line += fmt.Sprintf(" (%s and %d more)", t[0], len(t)-1)
		case len(t) > 0:
			line += " (" + strings.Join(t, ", ") + ")"
		}
		lines = append(lines, line)
	}
	return lines
}
