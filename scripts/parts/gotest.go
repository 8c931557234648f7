package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// event is a line of go test -json: see go doc test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string
}

// place is where a test's line was written, which go test puts before it.
var place = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: `)

// runTests runs a command that writes events, and gives 1 where either it or a
// package failed.
func runTests(dir string, command []string) int {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "parts: %v\n", err)
		return 1
	}
	code := gotest(dir, out, os.Stdout)
	if err := cmd.Wait(); err != nil && code == 0 {
		fmt.Printf("FAIL: %s: %v\n", strings.Join(command, " "), err)
		code = 1
	}
	return code
}

// gotest reads events, prints packages' lines and what failing tests wrote, and
// notes skips. It gives 1 where a package failed, or where none came.
func gotest(dir string, in io.Reader, out io.Writer) int {
	part := os.Getenv("WINDROW_PART")
	var (
		c        counts
		packages int
		failed   bool
		outputs  = map[string][]string{} // by package and test, of those that have not ended
		said     = map[string]bool{}     // packages whose line came
	)
	lines := bufio.NewReader(in)
	for {
		line, end := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil || e.Action == "":
			fmt.Fprint(out, line) // not an event: what a tool says for itself
		default:
			key := e.Package + "\x00" + e.Test
			switch e.Action {
			case "build-output":
				fmt.Fprint(out, e.Output)
			case "output":
				if reason, ok := strings.CutPrefix(place.ReplaceAllString(strings.TrimSpace(e.Output), ""), leftOut); ok {
					note(dir, omission{part, e.Package, e.Test, strings.TrimSpace(reason)})
				}
				if e.Test == "" && packageLine(e.Output) {
					fmt.Fprint(out, e.Output)
					said[e.Package] = true
					break
				}
				outputs[key] = append(outputs[key], e.Output)
			case "pass", "fail", "skip":
				if e.Test == "" {
					packages++
					if e.Action == "fail" {
						failed = true
						// What unfinished tests and the package itself wrote: a panic, a signal, a timeout.
						for k, o := range outputs {
							if strings.HasPrefix(k, e.Package+"\x00") {
								fmt.Fprint(out, strings.Join(o, ""))
							}
						}
						fmt.Fprintf(out, "FAIL\t%s\n", e.Package)
					} else if e.Action == "pass" && !said[e.Package] {
						fmt.Fprintf(out, "ok  \t%s\n", e.Package) // go tool test2json leaves it out
					}
					for k := range outputs {
						if strings.HasPrefix(k, e.Package+"\x00") {
							delete(outputs, k)
						}
					}
					break
				}
				switch e.Action {
				case "pass":
					c.Passed++
				case "fail":
					c.Failed++
					fmt.Fprint(out, strings.Join(outputs[key], ""))
				case "skip":
					c.Skipped++
					note(dir, omission{part, e.Package, e.Test, skipReason(outputs[key])})
				}
				delete(outputs, key)
			}
		}
		if end != nil {
			break
		}
	}
	noteCounts(dir, part, c)
	if packages == 0 {
		fmt.Fprintln(out, "FAIL: no package was tested")
	}
	if failed || packages == 0 {
		return 1
	}
	return 0
}

// packageLine reports whether a line is what go test says of a package.
func packageLine(s string) bool {
	return strings.HasPrefix(s, "ok  \t") || strings.HasPrefix(s, "?   \t") || strings.HasPrefix(s, "\t") && strings.Contains(s, "coverage:")
}

// skipReason is what a test wrote last before its verdict.
func skipReason(output []string) string {
	reason := ""
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		reason = place.ReplaceAllString(line, "")
	}
	if reason == "" {
		return "no reason given"
	}
	return reason
}
