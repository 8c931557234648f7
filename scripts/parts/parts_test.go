package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"windrow/a"}
{"Action":"run","Package":"windrow/a","Test":"TestGood"}
{"Action":"output","Package":"windrow/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"windrow/a","Test":"TestGood","Output":"    a_test.go:7: left out: the long half; set SLOW\n"}
{"Action":"pass","Package":"windrow/a","Test":"TestGood","Elapsed":0}
{"Action":"output","Package":"windrow/a","Test":"TestSkipped/x","Output":"    a_test.go:9: needs AVX512F; this processor lacks it\n"}
{"Action":"output","Package":"windrow/a","Test":"TestSkipped/x","Output":"--- SKIP: TestSkipped/x (0.00s)\n"}
{"Action":"skip","Package":"windrow/a","Test":"TestSkipped/x"}
{"Action":"output","Package":"windrow/a","Output":"PASS\n"}
{"Action":"output","Package":"windrow/a","Output":"ok  \twindrow/a\t0.01s\n"}
{"Action":"pass","Package":"windrow/a"}
`

func TestGotestAndReport(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("WINDROW_PART", "unit")
	var out strings.Builder
	if code := gotest(dir, strings.NewReader(events), &out); code != 0 || out.String() != "ok  \twindrow/a\t0.01s\n" {
		t.Fatalf("%d, %q", code, out.String())
	}
	if code := run(dir, "unit", []string{"sh", "-c", "echo left out: no qemu"}, io.Discard); code != 0 {
		t.Fatal(code)
	}
	out.Reset()
	if code := report(dir, &out); code != 0 {
		t.Fatal(code)
	}
	for _, want := range []string{"  unit ", "unit: the long half; set SLOW (a TestGood)", "unit: needs AVX512F; this processor lacks it (a TestSkipped/x)", "unit: no qemu\n", "1 passed, 0 failed, 1 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
}

// What fails is said in full, and fails.
func TestGotestFails(t *testing.T) {
	t.Setenv("WINDROW_PART", "unit")
	for _, c := range []struct{ name, events, want string }{
		{"a test", `{"Action":"output","Package":"windrow/b","Test":"TestBad","Output":"    b_test.go:1: wrong\n"}
{"Action":"fail","Package":"windrow/b","Test":"TestBad"}
{"Action":"fail","Package":"windrow/b"}`, "wrong\n"},
		{"a signal", `{"Action":"output","Package":"windrow/b","Test":"TestDies","Output":"SIGILL: illegal instruction\n"}
{"Action":"output","Package":"windrow/b","Output":"FAIL\twindrow/b\t0.1s\n"}
{"Action":"fail","Package":"windrow/b"}`, "SIGILL"},
		{"a build", `{"ImportPath":"windrow/b","Action":"build-output","Output":"b.go:1: syntax\n"}
{"Action":"fail","Package":"windrow/b"}`, "syntax"},
		{"nothing", "", "no package"},
		{"an end too soon", `{"Action":"output","Package":"windrow/b","Test":"TestDies","Output":"x\n"}`, "no package"},
	} {
		var out strings.Builder
		if code := gotest("", strings.NewReader(c.events), &out); code != 1 || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: %d, %q", c.name, code, out.String())
		}
	}
}

// A command that fails after its packages passed is a failure.
func TestRunTests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(file, []byte(events), 0o666); err != nil {
		t.Fatal(err)
	}
	if code := runTests("", []string{"cat", file}); code != 0 {
		t.Error(code)
	}
	if code := runTests("", []string{"sh", "-c", "cat " + file + "; exit 2"}); code != 1 {
		t.Error(code)
	}
	if code := runTests("", []string{"no such program"}); code != 1 {
		t.Error(code)
	}
}

func TestRunFails(t *testing.T) {
	dir := t.TempDir()
	if code := run(dir, "bad", []string{"sh", "-c", "exit 3"}, io.Discard); code != 3 {
		t.Error(code)
	}
	if code := run(dir, "none", []string{filepath.Join(dir, "no such program")}, io.Discard); code != 1 {
		t.Error(code)
	}
	var out strings.Builder
	if code := report(dir, &out); code != 1 || strings.Count(out.String(), "FAILED") != 2 {
		t.Errorf("%d, %s", code, out.String())
	}
	if code := report(t.TempDir(), &out); code != 1 {
		t.Error("a report of nothing should fail")
	}
	if err := os.WriteFile(filepath.Join(dir, "torn.json"), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if code := report(dir, &out); code != 1 {
		t.Error("a torn record should fail")
	}
}
