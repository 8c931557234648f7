package eval

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"windrow/decoder"
)

func evaluation(output string) GSM8K {
	return GSM8K{Data: scriptedData(), Settings: DefaultSettings(), Model: "script", Output: output}
}

// few is an evaluation of three problems.
func few(output string) GSM8K {
	c := evaluation(output)
	c.Limit = 3
	return c
}

func runTo(t *testing.T, c GSM8K) []byte {
	t.Helper()
	if _, err := RunGSM8K(context.Background(), &scripted{}, c); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(c.Output)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestOutputGolden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	golden(t, "output.jsonl", runTo(t, evaluation(path)))
}

// TestOutputCut cuts the file at every byte of its first two and last two
// lines, as an interruption might, and resumes: the file must come out the
// same to the byte, and only the missing items may be asked for.
func TestOutputCut(t *testing.T) {
	syncFile = func(*os.File) error { return nil }
	defer func() { syncFile = (*os.File).Sync }()
	path := filepath.Join(t.TempDir(), "out.jsonl")
	whole := runTo(t, few(path))
	lines := bytes.SplitAfter(whole, []byte("\n"))
	lines = lines[:len(lines)-1]
	head := len(lines[0]) + len(lines[1])
	tail := len(whole) - len(lines[len(lines)-1]) - len(lines[len(lines)-2])
	want, err := RunGSM8K(context.Background(), &scripted{}, few(""))
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut <= len(whole); cut++ {
		if cut > head && cut < tail {
			continue
		}
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		runner := &scripted{}
		report, err := RunGSM8K(context.Background(), runner, few(path))
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, whole) {
			t.Fatalf("cut at %d: the file differs:\n%s", cut, got)
		}
		kept := bytes.Count(whole[:cut], []byte("\n"))
		if cut > 0 && cut < len(whole) && whole[cut] == '\n' {
			kept++ // only the newline was missing
		}
		if report.Resumed != kept || len(runner.calls) != len(lines)-kept {
			t.Fatalf("cut at %d: %d resumed, %d asked, %d lines kept", cut, report.Resumed, len(runner.calls), kept)
		}
		if report.Settings[2].Correct != want.Settings[2].Correct || len(report.Items) != len(want.Items) {
			t.Fatalf("cut at %d: the report differs: %+v", cut, report.Settings[2])
		}
	}
}

// TestOutputZeros is what a file system may leave after a power failure.
func TestOutputZeros(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	whole := runTo(t, evaluation(path))
	for _, tail := range []string{"\x00\x00\x00", `{"ind` + "\x00\x00"} {
		cut := bytes.IndexByte(whole, '\n') + 1
		if err := os.WriteFile(path, append(whole[:cut:cut], tail...), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := runTo(t, evaluation(path)); !bytes.Equal(got, whole) {
			t.Errorf("tail %q: the file differs:\n%s", tail, got)
		}
	}
}

func TestOutputInterrupted(t *testing.T) {
	dir := t.TempDir()
	whole := runTo(t, evaluation(filepath.Join(dir, "whole.jsonl")))
	path := filepath.Join(dir, "out.jsonl")
	for n := 1; ; n += 5 {
		ctx, cancel := context.WithCancel(context.Background())
		report, err := RunGSM8K(ctx, &scripted{stopAfter: n, cancel: cancel}, evaluation(path))
		cancel()
		if err == nil {
			if !report.Complete {
				t.Error("the last run is not complete")
			}
			break
		}
		if !errors.Is(err, context.Canceled) || report == nil || report.Complete {
			t.Fatalf("interrupted run: %v, %+v", err, report)
		}
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, whole) {
		t.Errorf("the file differs:\n%s", got)
	}
}

// TestOutputGrows resumes with more problems and more settings.
func TestOutputGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	small := evaluation(path)
	small.Settings, small.Offset, small.Limit = small.Settings[:1], 2, 3
	if _, err := RunGSM8K(context.Background(), &scripted{}, small); err != nil {
		t.Fatal(err)
	}
	runner := &scripted{}
	report, err := RunGSM8K(context.Background(), runner, evaluation(path))
	if err != nil {
		t.Fatal(err)
	}
	if report.Resumed != 3 || len(runner.calls) != 3*scriptedProblems-3 || len(report.Items) != 3*scriptedProblems {
		t.Errorf("%d resumed, %d asked, %d items", report.Resumed, len(runner.calls), len(report.Items))
	}
	// The small run again: its items are there, the others do not count.
	runner = &scripted{}
	report, err = RunGSM8K(context.Background(), runner, small)
	if err != nil {
		t.Fatal(err)
	}
	if report.Resumed != 3 || len(runner.calls) != 0 || report.Settings[0].N != 3 {
		t.Errorf("%d resumed, %d asked, n %d", report.Resumed, len(runner.calls), report.Settings[0].N)
	}
}

func TestOutputRefused(t *testing.T) {
	dir := t.TempDir()
	whole := runTo(t, evaluation(filepath.Join(dir, "whole.jsonl")))
	first := whole[:bytes.IndexByte(whole, '\n')+1]
	replace := func(old, new string) []byte { return bytes.Replace(whole, []byte(old), []byte(new), 1) }
	for _, test := range []struct {
		name    string
		content []byte
		change  func(*GSM8K)
		want    string
	}{
		{"model", whole, func(c *GSM8K) { c.Model = "other" }, "line 1: made with other model than this run; give another file"},
		{"arithmetic", whole, func(c *GSM8K) { c.Arithmetic = "exact" }, "other model than"},
		{"few-shot", whole, func(c *GSM8K) { c.FewShot = 1 }, "other options than"},
		{"max tokens", whole, func(c *GSM8K) { c.Options.MaxTokens = 7 }, "other options than"},
		{"temperature", whole, func(c *GSM8K) { c.Options.Sampling.Temperature = 1 }, "other options than"},
		{"data", whole, func(c *GSM8K) { c.Data.Problems = c.Data.Problems[:3] }, "other data than"},
		{"all", whole, func(c *GSM8K) { c.Data.Problems, c.Model, c.Raw = c.Data.Problems[:3], "other", true },
			"other data and model and options than"},
		{"notes", []byte("my notes"), nil, "line 1: not JSON"},
		{"notes with newline", []byte("my notes\n"), nil, "line 1: not JSON"},
		{"other JSON", []byte(`{"question":"a","answer":"1"}` + "\n"), nil, "line 1: not an item of an evaluation"},
		{"other JSON, torn", []byte(`{"question":"a","ans`), nil, "line 1: not JSON"},
		{"torn in the middle", append(whole[:20:20], whole[len(first)-1:]...), nil, "line 1: not JSON"},
		{"blank line", append(first[:len(first):len(first)], '\n'), nil, "line 2: not JSON"},
		{"repeated", append(first[:len(first):len(first)], first...), nil, "line 2: repeats item 0 (ar) of line 1"},
		{"index", replace(`"index":0`, `"index":1`), nil, "line 1: index 1 is another question in doubles"},
		{"large index", replace(`"index":0`, `"index":12`), nil, "line 1: index 12 is another question"},
		{"negative index", replace(`"index":0`, `"index":-1`), nil, "line 1: count -1"},
		{"mode", replace(`"mode":"ar"`, `"mode":"up"`), nil, `line 1: mode "up": want ar, wedlm or verified`},
		{"tokens", replace(`"tokens":16`, `"tokens":1e30`), nil, `line 1: field "tokens": found number 1e30`},
		{"seconds", replace(`"decode_seconds":0.016`, `"decode_seconds":-1`), nil, "line 1: seconds -1"},
		{"run", replace(`"run":"`, `"run":"x.`), nil, `line 1: made by another version (run "x.`},
	} {
		path := filepath.Join(dir, "out.jsonl")
		if err := os.WriteFile(path, test.content, 0o644); err != nil {
			t.Fatal(err)
		}
		c := evaluation(path)
		if test.change != nil {
			test.change(&c)
		}
		runner := &scripted{}
		_, err := RunGSM8K(context.Background(), runner, c)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if got, _ := os.ReadFile(path); !bytes.Equal(got, test.content) || len(runner.calls) > 0 {
			t.Errorf("%s: the refused file was changed, or the run began", test.name)
		}
	}
	if _, err := RunGSM8K(context.Background(), &scripted{}, evaluation(dir)); err == nil {
		t.Error("a folder as output: no error")
	}
}

func TestOutputLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	d := scriptedData()
	first, err := openOutput(path, d, "a.b.c")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if second, err := openOutput(path, d, "a.b.c"); err == nil {
		second.Close()
		t.Skip("no file locks here")
	} else if !strings.Contains(err.Error(), "another run is writing it") {
		t.Error(err)
	}
}

// TestOutputWriteError is a full disk: the file must end with a whole line.
func TestOutputWriteError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	d := scriptedData()
	o, err := openOutput(path, d, "a.b.c")
	if err != nil {
		t.Fatal(err)
	}
	it := newItem(d.Problems[0], Setting{Mode: decoder.AR}, decoder.Summary{Text: "5\xff"}, "a.b.c")
	if err := o.append(it); err != nil {
		t.Fatal(err)
	}
	o.file.Close()
	if err := o.append(it); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("write to a closed file: %v", err)
	}
	o, err = openOutput(path, d, "a.b.c")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if len(o.resumed) != 1 || o.resumed[0] != it {
		t.Errorf("resumed %+v, want %+v", o.resumed, it)
	}
}

func FuzzParseItem(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", "output.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	lines := bytes.Split(data, []byte("\n"))
	for _, line := range lines[:4] {
		f.Add(line)
		f.Add(line[:len(line)/2])
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		it, err := parseItem(line)
		if err != nil {
			return
		}
		written, err := it.line()
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		again, err := parseItem(written[:len(written)-1])
		if err != nil || again.key() != it.key() || again.Text != it.Text || again.Tokens != it.Tokens {
			t.Fatalf("%q: read back as %q, %v", line, written, err)
		}
	})
}
