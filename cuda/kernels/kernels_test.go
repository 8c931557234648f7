package kernels

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// sources returns the names of the *.cu without their suffix.
func sources(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.cu")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources (%v)", err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".cu")
	}
	return files
}

// targets are the suffixes of a source's images.
func targets(source string) []string {
	if strings.HasSuffix(source, "_hopper") {
		return []string{".sm_90a.ptx"}
	}
	return []string{".sm_80.ptx", ".sm_90a.ptx"}
}

// TestImagesOfSources wants every source's images embedded, and none of a
// source that is not there.
func TestImagesOfSources(t *testing.T) {
	want := map[string]bool{}
	for _, s := range sources(t) {
		for _, suffix := range targets(s) {
			want[s+suffix+".gz"] = true
		}
	}
	entries, err := images.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !want[e.Name()] {
			t.Errorf("%s has no source", e.Name())
		}
		delete(want, e.Name())
	}
	for name := range want {
		t.Errorf("%s is missing: run build.sh", name)
	}
}

// TestImagesUpToDate makes the images anew and compares. Outside of CI and the
// slow tests only those that are older than a source are made, by more than a clone
// takes to write its files.
func TestImagesUpToDate(t *testing.T) {
	if _, err := exec.LookPath("clang-22"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("clang-22 is needed")
		}
		t.Skip("left out: clang-22 is needed")
	}
	all := os.Getenv("CI") != "" || os.Getenv("WINDROW_SLOW") != ""
	headers := newest(t, "*.cuh")
	for _, s := range sources(t) {
		t.Run(s, func(t *testing.T) {
			changed := newest(t, s+".cu")
			if headers.After(changed) {
				changed = headers
			}
			if !all && !changed.After(newest(t, s+targets(s)[0]+".gz").Add(20*time.Second)) {
				t.Skip("older than its images")
			}
			t.Parallel()
			dir := t.TempDir()
			if out, err := exec.Command("sh", "build.sh", "-o", dir, s).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, suffix := range targets(s) {
				fresh, err := os.ReadFile(filepath.Join(dir, s+suffix+".gz"))
				if err != nil {
					t.Fatal(err)
				}
				kept, err := read(s + suffix)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(kept, unzip(t, fresh)) {
					t.Errorf("%s%s is not what build.sh makes of the source", s, suffix)
				}
			}
		})
	}
}

// newest is the time of the latest change of files.
func newest(t *testing.T, pattern string) time.Time {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var latest time.Time
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if info.ModTime().After(latest) {
			latest = info.ModTime()
		}
	}
	return latest
}

func unzip(t *testing.T, data []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// clustered are the names of kernels that run in clusters, of two blocks or of N.
var clustered = regexp.MustCompile(`_(pair|c(\d+))$`)

// TestClusters wants the marks of clusters, which clang has no attribute for, at the kernels
// whose names say so and at no other.
func TestClusters(t *testing.T) {
	marks := regexp.MustCompile(`\.minnctapersm \d+\n\.explicitcluster\n\.reqnctapercluster (\d+), 1, 1`)
	entries, err := images.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	pairs, more := 0, 0
	for _, e := range entries {
		text, err := read(strings.TrimSuffix(e.Name(), ".gz"))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range bytes.Split(text, entry)[1:] {
			name, body, _ := bytes.Cut(part, []byte("("))
			want := ""
			switch blocks := clustered.FindSubmatch(name); {
			case blocks == nil:
			case blocks[2] == nil:
				pairs++
				want = "2"
			default:
				more++
				want = string(blocks[2])
			}
			got := ""
			for _, m := range marks.FindAllSubmatch(body, -1) {
				got += string(m[1])
			}
			if got != want || bytes.Count(body, []byte(".reqnctapercluster")) != min(len(want), 1) {
				t.Errorf("%s: kernel %s is marked as clusters of %q blocks, want %q", e.Name(), name, got, want)
			}
		}
	}
	if pairs == 0 || more == 0 {
		t.Error("no kernel runs in clusters")
	}
}

// TestKernelNames wants no name in two files: the emulator finds kernels by name.
func TestKernelNames(t *testing.T) {
	files := map[string]string{}
	for _, file := range Files(9, 0) {
		names, err := Names(file, 9, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if other, ok := files[name]; ok {
				t.Errorf("kernel %s is in %s and in %s", name, other, file)
			}
			files[name] = file
		}
	}
}

// TestImageContents compares the images with what a driver's translator takes:
// no calls and no symbols of a device library, no doubles (slow), and no
// paths of the machine that made them.
func TestImageContents(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"a call":                regexp.MustCompile(`(?m)^\s*call[. ]`),
		"an undefined function": regexp.MustCompile(`\.extern \.func`),
		"arithmetic in doubles": regexp.MustCompile(`(?m)^\s*(add|mul|fma|div|sqrt)\.[a-z.]*f64`),
		"a path":                regexp.MustCompile(`(?m)(^|[\s"])/(home|root|work|tmp|usr)/`),
	}
	entries, err := images.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := read(strings.TrimSuffix(e.Name(), ".gz"))
		if err != nil {
			t.Fatal(err)
		}
		for what, pattern := range forbidden {
			if found := pattern.Find(text); found != nil {
				t.Errorf("%s has %s: %q", e.Name(), what, found)
			}
		}
	}
}
