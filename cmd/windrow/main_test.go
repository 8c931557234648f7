package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"windrow/checkpoint"
	"windrow/models/tinygsm"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "windrow" { // else this is the program, in a test of its own
		os.Setenv("XDG_RUNTIME_DIR", filepath.Join(os.TempDir(), "windrow-tests-have-no-server"))
	}
	testscript.Main(m, map[string]func(){"windrow": main})
}

// TestScripts runs the program as its users do: see testdata/script.
func TestScripts(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	costs := t.TempDir() // c(rows) is measured once for all scripts
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":      checkCode,
			"oneline":   checkOneLine,
			"jsonhas":   checkJSON,
			"model":     writeModel,
			"hybrid":    writeHybrid,
			"gguf":      writeGGUF,
			"truncate":  truncateFile,
			"spoil":     spoilWeights,
			"repeat":    repeatText,
			"append":    appendFile,
			"interrupt": interruptProgram,
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv(cacheVariable, costs)
			e.Setenv("HF_HUB_CACHE", filepath.Join(e.WorkDir, "hub"))
			path, err := filepath.Abs(filepath.Join("..", "..", "model", "testdata", "golden"))
			e.Setenv("GOLDEN", path)
			return err
		},
	})
}

// checkCode is "code N COMMAND ARGS…": the command must exit with code N.
func checkCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command args...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// checkOneLine is "oneline": standard error holds one line of an error that
// is not too long to read, and no trace of a panic.
func checkOneLine(ts *testscript.TestScript, neg bool, args []string) {
	stderr := ts.ReadFile("stderr")
	if n := strings.Count(stderr, "\n"); n != 1 || !strings.HasPrefix(stderr, "windrow: ") || len(stderr) > 400 {
		ts.Fatalf("want one line that begins with \"windrow: \", at most 400 bytes, got %d lines:\n%s", n, stderr)
	}
}

// checkJSON is "jsonhas PATH…": standard output is one JSON object in which
// each dotted path exists.
func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	var v any
	if err := d.Decode(&v); err != nil {
		ts.Fatalf("standard output: %v", err)
	}
	if d.More() {
		ts.Fatalf("standard output: more than one JSON value")
	}
	for _, path := range args {
		at := v
		for key := range strings.SplitSeq(path, ".") {
			if list, ok := at.([]any); ok {
				if len(list) == 0 {
					ts.Fatalf("%s: empty list before %q", path, key)
				}
				at = list[0]
			}
			object, ok := at.(map[string]any)
			if !ok {
				ts.Fatalf("%s: no object at %q", path, key)
			}
			if at, ok = object[key]; !ok {
				ts.Fatalf("%s: no key %q", path, key)
			}
		}
	}
}

// writeModel is "model FOLDER": the embedded model's files, small ones first.
func writeModel(ts *testscript.TestScript, neg bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	for name, data := range tinygsm.Files() {
		ts.Check(os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
}

// writeHybrid is "hybrid FOLDER": the trained hybrid, without its mask, so that its own
// head drafts.
func writeHybrid(ts *testscript.TestScript, neg bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.CopyFS(dir, os.DirFS(filepath.Join(ts.Getenv("GOLDEN"), "..", "..", "..", "models", "tinygsmnext"))))
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
	ts.Check(err)
	var config map[string]any
	ts.Check(json.Unmarshal(data, &config))
	delete(config, "mask_token_id")
	data, err = json.Marshal(config)
	ts.Check(err)
	ts.Check(os.WriteFile(path, data, 0o644))
}

// truncateFile is "truncate FILE BYTES".
func truncateFile(ts *testscript.TestScript, neg bool, args []string) {
	var n int64
	ts.Check(json.Unmarshal([]byte(args[1]), &n))
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// spoilWeights is "spoil FILE [TENSOR]": every 16-bit element of the data, or of a tensor's,
// becomes NaN.
func spoilWeights(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	data, err := os.ReadFile(path)
	ts.Check(err)
	body := data[8+binary.LittleEndian.Uint64(data):]
	if len(args) > 1 {
		s, err := checkpoint.ReadSafetensors(data)
		ts.Check(err)
		t, ok := s.Lookup(args[1])
		if !ok {
			ts.Fatalf("no tensor %s", args[1])
		}
		body = t.Data // a part of the file's
	}
	nan := uint16(math.Float32bits(float32(math.NaN())) >> 16)
	for i := 0; i+1 < len(body); i += 2 {
		binary.LittleEndian.PutUint16(body[i:], nan)
	}
	ts.Check(os.WriteFile(path, data, 0o644))
}

// repeatText is "repeat FILE TEXT N": TEXT N times, and a newline.
func repeatText(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat(args[1], n)+"\n"), 0o644))
}

// appendFile is "append FILE OTHER": what OTHER holds goes behind FILE.
func appendFile(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(ts.ReadFile(args[0])+ts.ReadFile(args[1])), 0o644))
}

// interruptProgram is "interrupt CODE STDIN COMMAND ARGS…": it sends an
// interrupt once the command has written something to its standard output.
// Both outputs go to the log, standard error also to the file "stderr.txt".
func interruptProgram(ts *testscript.TestScript, neg bool, args []string) {
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Stdin = strings.NewReader(ts.ReadFile(args[1]))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	first := make([]byte, 1)
	if _, err := io.ReadFull(stdout, first); err != nil {
		ts.Fatalf("no output: %v: %s", err, stderr.Bytes())
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(stdout)
	ts.Check(err)
	cmd.Wait()
	ts.Logf("[stdout]\n%s%s\n[stderr]\n%s", first, rest, stderr.Bytes())
	if got := fmt.Sprint(cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs("stderr.txt"), stderr.Bytes(), 0o644))
}
