// Command parts runs the parts of make test, and says at the end how long each
// took, what was left out, and why.
//
//	parts run NAME COMMAND…   runs one part; with WINDROW_PARTS set to a folder it leaves a record there
//	parts gotest COMMAND…     runs go test -json, or go tool test2json, prints what go test prints without -v, and notes what was left out
//	parts report              prints the records of WINDROW_PARTS
//
// A test leaves something out by skipping, or by a line that begins with "left
// out: " (t.Log); so does a script.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// record is what one part leaves in the folder: NAME.json.
type record struct {
	Name      string
	Seconds   float64
	Processor float64 // seconds of all threads of its processes
	Failed    bool
	Started   time.Time
}

func main() {
	dir := os.Getenv("WINDROW_PARTS")
	code := 2
	switch args := os.Args[1:]; {
	case len(args) > 2 && args[0] == "run":
		code = run(dir, args[1], args[2:], os.Stdout)
	case len(args) > 1 && args[0] == "gotest":
		code = runTests(dir, args[1:])
	case len(args) == 1 && args[0] == "report" && dir != "":
		code = report(dir, os.Stdout)
	default:
		fmt.Fprintln(os.Stderr, "usage: parts run NAME COMMAND… | parts gotest COMMAND… | WINDROW_PARTS=FOLDER parts report")
	}
	os.Exit(code)
}

// run runs a part, whose output goes to a writer. Lines that begin with "left out: "
// are noted.
func run(dir, name string, command []string, to io.Writer) int {
	r := record{Name: name, Started: time.Now()}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	cmd.Env = append(os.Environ(), "WINDROW_PART="+name)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		in := bufio.NewReader(out)
		for {
			line, end := in.ReadString('\n')
			fmt.Fprint(to, line)
			if reason, ok := strings.CutPrefix(strings.TrimSpace(line), leftOut); ok {
				note(dir, omission{Part: name, Reason: reason})
			}
			if end != nil {
				break
			}
		}
		err = cmd.Wait()
	}
	code := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = max(exit.ExitCode(), 1)
	case err != nil:
		fmt.Fprintf(os.Stderr, "parts: %s: %v\n", name, err)
		code = 1
	}
	r.Seconds, r.Failed = time.Since(r.Started).Seconds(), code != 0
	if s := cmd.ProcessState; s != nil {
		r.Processor = (s.UserTime() + s.SystemTime()).Seconds()
	}
	if dir != "" {
		data, _ := json.Marshal(r)
		if err := os.WriteFile(filepath.Join(dir, name+".json"), data, 0o666); err != nil {
			fmt.Fprintf(os.Stderr, "parts: %v\n", err)
			code = 1
		}
	}
	return code
}

const leftOut = "left out: "

// omission is one thing left out: by a part's script, or by a test.
type omission struct {
	Part, Package, Test, Reason string
}

// note appends to the folder's list. Parts that run side by side write to
// files of their own.
func note(dir string, o omission) {
	if dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, o.Part+".omitted"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		fmt.Fprintf(os.Stderr, "parts: %v\n", err)
		return
	}
	defer f.Close()
	_ = json.NewEncoder(f).Encode(o)
}

// counts is what tests did, by part.
type counts struct{ Passed, Failed, Skipped int }

func (c *counts) add(d counts) {
	c.Passed, c.Failed, c.Skipped = c.Passed+d.Passed, c.Failed+d.Failed, c.Skipped+d.Skipped
}

// noteCounts leaves what one run of tests did.
func noteCounts(dir, part string, c counts) {
	if dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, part+".counts"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		fmt.Fprintf(os.Stderr, "parts: %v\n", err)
		return
	}
	defer f.Close()
	_ = json.NewEncoder(f).Encode(c)
}

// readAll decodes the JSON values of the folder's files of one ending.
func readAll[T any](dir, ending string) (all []T, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+ending))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		for d := json.NewDecoder(f); ; {
			var v T
			if err := d.Decode(&v); err == io.EOF {
				break
			} else if err != nil {
				f.Close()
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, v)
		}
		f.Close()
	}
	return all, nil
}
