package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"windrow/bench"
	"windrow/models/tinygsm"
)

// benchServed measures the embedded model with some flags, and reads the report.
func benchServed(t *testing.T, flags string, report any) {
	t.Helper()
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	t.Setenv(cacheVariable, t.TempDir())
	var stdout, stderr bytes.Buffer
	code := run(strings.Fields("windrow bench serve "+flags+" --json"), strings.NewReader(""), &stdout, &stderr)
	if err := json.Unmarshal(stdout.Bytes(), report); code != 0 || err != nil {
		t.Fatalf("%d %v %s %s", code, err, &stdout, &stderr)
	}
}

// TestBenchServe measures the embedded model: all is answered, and the texts among
// others are those that one client alone gets.
func TestBenchServe(t *testing.T) {
	var r bench.LoadReport
	benchServed(t, "--clients 1,4 --requests 8 --prompt 40 --tokens 12 --rate 200% --mode verified", &r)
	if len(r.Levels) != 3 || r.Model != "tiny-gsm" || r.Mode != "verified" || r.Failed() != 0 || r.Different() != 0 {
		t.Errorf("%+v", r)
	}
	for i, l := range r.Levels {
		if l.Requests != 8 || l.Cached != 0 || !(l.Throughput.Median > 0) || !(l.TTFT50.Median > 0) || l.Compared != 8*min(i, 1) {
			t.Errorf("%+v", l)
		}
	}
}

// TestBenchServeForms: prompts that begin alike are found in the cache, and answers are
// held to a schema; both stay what one client alone gets.
func TestBenchServeForms(t *testing.T) {
	var r bench.LoadReport
	benchServed(t, "--clients 1,4 --requests 8 --prompt 100 --shared 80 --tokens 12 --schema text", &r)
	if r.Failed() != 0 || r.Different() != 0 || r.Shared != 80 || !r.Schema {
		t.Errorf("%+v", r)
	}
	for i, l := range r.Levels {
		if l.Requests != 8 || l.Cached < 8*64 || !(l.Throughput.Median > 0) || l.Compared != 8*i {
			t.Errorf("%+v", l)
		}
	}
	for _, flags := range []string{"--schema /nowhere", "--shared 511", "--model-name a,b", "--swap-every 0"} {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields("windrow bench serve "+flags), strings.NewReader(""), &stdout, &stderr); code == 0 || stderr.Len() == 0 {
			t.Errorf("%s: %d %s", flags, code, &stderr)
		}
	}
}

// TestBenchServeShape: random weights of a shape, which have no tokenizer, are served, and
// can be held to a schema.
func TestBenchServeShape(t *testing.T) {
	for _, more := range []string{"--text", "--schema text"} {
		var stdout, stderr bytes.Buffer
		code := run(strings.Fields("windrow bench serve --shape tiny-gsm --dtype q8_0 --clients 2 --requests 2 --prompt 20 --tokens 8 "+more), strings.NewReader(""), &stdout, &stderr)
		if code != 0 || !strings.Contains(stdout.String(), "tiny-gsm q8_0 at http") || !strings.Contains(stdout.String(), "2 clients") {
			t.Errorf("%s: %d %s %s", more, code, &stdout, &stderr)
		}
	}
}

// TestBenchServeHead: the shape of a hybrid has a head where that is to draft; others have none.
func TestBenchServeHead(t *testing.T) {
	shapes := map[string]int{"tiny-gsm": 1}
	if os.Getenv("WINDROW_SLOW") != "" {
		shapes["qwen3.5-0.8b"] = 0
	} else {
		t.Log("left out: a hybrid's, half a gigabyte: set WINDROW_SLOW=1")
	}
	for shape, want := range shapes {
		var stdout, stderr bytes.Buffer
		code := run(strings.Fields("windrow bench serve --backend cpu --shape "+shape+" --dtype affine4 --clients 1 --requests 2 --prompt 8 --tokens 4 --mode verified --draft mtp"), strings.NewReader(""), &stdout, &stderr)
		if code != want {
			t.Errorf("%s: %d, want %d: %s %s", shape, code, want, &stdout, &stderr)
		}
	}
}

// TestBenchServeData: questions are asked as conversations, answers end by themselves.
func TestBenchServeData(t *testing.T) {
	var r bench.LoadReport
	benchServed(t, "--data tinygsm --clients 1,4 --requests 8 --tokens 200 --mode verified --window 8", &r)
	if r.Questions != 500 || r.Prompt != 0 || r.Window != 8 || r.Failed() != 0 || r.Different() != 0 || r.Levels[1].Compared != 8 {
		t.Errorf("%+v", r)
	}
	var stdout, stderr bytes.Buffer
	if code := run(strings.Fields("windrow bench serve --data tinygsm --text"), strings.NewReader(""), &stdout, &stderr); code != 2 {
		t.Errorf("--text beside --data: exit code %d", code)
	}
}

// TestBenchSoak runs the soak for a moment.
func TestBenchSoak(t *testing.T) {
	var r bench.SoakReport
	benchServed(t, "--soak 3s --clients 4", &r)
	if r.Requests < 8 || r.Faults != 0 || r.Compared == 0 && r.Requests > 100 || r.Different != 0 || len(r.Samples) == 0 || r.StillRunning != 0 {
		t.Errorf("%+v", r)
	}
}

// TestBenchServeUsage: what cannot be is said in one line.
func TestBenchServeUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--url nowhere":            "want http://HOST:PORT",
		"--url http://x --model m": "--model",
		"--clients 0":              "--clients",
		"--clients x":              "--clients",
		"--clients 5000":           "at most",
		"--rate -1":                "--rate",
		"--rate 5%%":               "--rate",
		"--prompt 1":               "--prompt 1",
		"--tokens 0":               "--tokens 0",
		"--reps 0":                 "--reps 0",
		"--mode fast":              "--mode",
		"--soak 1ms":               "--soak",
		"--shape nothing":          "--shape",
		"something":                "takes no arguments",
		"--sequences 0":            "--sequences 0",
	} {
		var stdout, stderr bytes.Buffer
		code := run(append([]string{"windrow", "bench", "serve"}, strings.Fields(args)...), strings.NewReader(""), &stdout, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 || stdout.Len() != 0 {
			t.Errorf("%s: %d %q, want %q", args, code, stderr.String(), want)
		}
	}
	var stdout, stderr bytes.Buffer
	if code := run(strings.Fields("windrow bench serve --url http://127.0.0.1:1 --clients 1 --requests 1"), strings.NewReader(""), &stdout, &stderr); code != exitFailure || !strings.Contains(stderr.String(), "8 requests were not") && !strings.Contains(stderr.String(), "1 requests were not") {
		t.Errorf("nobody there: %d %s %s", code, &stdout, &stderr)
	}
}

// TestBenchGroup: bench is a command, and has one.
func TestBenchGroup(t *testing.T) {
	for args, want := range map[string]string{"--help": "serve", "serve --help": "--clients", "nothing": `got "nothing"`, "--wibble": "unknown flag"} {
		var stdout, stderr bytes.Buffer
		run(append([]string{"windrow", "bench"}, strings.Fields(args)...), strings.NewReader(""), &stdout, &stderr)
		if all := fmt.Sprint(&stdout, &stderr); !strings.Contains(all, want) {
			t.Errorf("%s: %s", args, all)
		}
	}
}
