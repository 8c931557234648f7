package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"windrow/cpu"
)

func TestSource(t *testing.T) {
	const revision = "0123456789abcdef0123456789abcdef01234567"
	settings := func(pairs ...string) (list []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return list
	}
	for want, info := range map[string]*debug.BuildInfo{
		"commit unknown":                              {Main: debug.Module{Version: "(devel)"}},
		"module v0.2.0":                               {Main: debug.Module{Version: "v0.2.0"}},
		"commit 0123456789ab of 2026-01-02":           {Settings: settings("vcs.revision", revision, "vcs.time", "2026-01-02T03:04:05Z", "vcs.modified", "false")},
		"commit 0123456789ab of 2026-01-02, modified": {Settings: settings("vcs.revision", revision, "vcs.time", "2026-01-02T03:04:05Z", "vcs.modified", "true")},
		"commit 0123":                                 {Settings: settings("vcs.revision", "0123"), Main: debug.Module{Version: "v0.0.0-2026"}},
	} {
		if got := recordedSource(info).String(); got != want {
			t.Errorf("%v: %q, want %q", info, got, want)
		}
	}
	defer func(commit, date, modified string) {
		stampedCommit, stampedDate, stampedModified = commit, date, modified
	}(stampedCommit, stampedDate, stampedModified)
	stampedCommit, stampedDate, stampedModified = revision, "2026-01-02T03:04:05+01:00", "true"
	if got, want := commit(), "commit 0123456789ab of 2026-01-02, modified"; got != want {
		t.Errorf("stamped: %q, want %q", got, want)
	}
}

// TestMachine: the features are those that Linux names, neither more nor less.
func TestMachine(t *testing.T) {
	name, features := cpu.Machine()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skipf("no list to compare with on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip(err)
	}
	line := regexp.MustCompile(`(?m)^flags\s*:(.*)$`).FindSubmatch(text)
	if line == nil {
		t.Skip("no flags in /proc/cpuinfo")
	}
	flags := strings.Fields(string(line[1]))
	for _, f := range []string{"avx2", "fma", "f16c", "bmi2", "avx_vnni", "avx512f", "avx512_vnni", "avx512vbmi", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"} {
		if slices.Contains(flags, f) != slices.Contains(features, f) {
			t.Errorf("%s: %s is in one of %q and %q", name, f, flags, features)
		}
	}
}

// TestBuildStamp: what make build stamps in a clone, whoever owns it, and that
// it says nothing of what is no clone.
func TestBuildStamp(t *testing.T) {
	script, err := filepath.Abs("../../scripts/build-stamp.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"git", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here", tool)
		}
	}
	dir := t.TempDir()
	run := func(where, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = where
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME=", "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir),
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			errors.As(err, &exit)
			t.Fatalf("%s %q: %v: %s", name, args, err, exit.Stderr)
		}
		return string(out)
	}
	stamp := func(where string) string { return run(where, "sh", script) }
	if got := stamp(dir); got != "" {
		t.Errorf("no clone: %q", got)
	}
	run(dir, "git", "init", "-q")
	if got := stamp(dir); got != "" {
		t.Errorf("no commit yet: %q", got)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "part"), 0o755), os.WriteFile(filepath.Join(dir, "part", "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	run(dir, "git", "add", ".")
	run(dir, "git", "commit", "-q", "-m", "one")
	want := "-X main.stampedCommit=" + strings.TrimSpace(run(dir, "git", "rev-parse", "HEAD")) + " -X main.stampedDate=2026-01-02T03:04:05+00:00"
	want = strings.Replace(want, "+00:00", "", 1)
	same := func(name, got, tail string) {
		t.Helper()
		if got = regexp.MustCompile(`(\+00:00|Z)`).ReplaceAllString(got, ""); got != want+tail {
			t.Errorf("%s: %q, want %q", name, got, want+tail)
		}
	}
	same("a clone", stamp(dir), "")
	if got := stamp(filepath.Join(dir, "part")); got != "" {
		t.Errorf("a part of another repository: %q", got)
	}
	others := t.TempDir()
	run(dir, "git", "worktree", "add", "-q", "--detach", filepath.Join(others, "worktree"))
	same("a worktree", stamp(filepath.Join(others, "worktree")), "")
	run(dir, "git", "clone", "-q", "--depth", "1", "file://"+dir, filepath.Join(others, "shallow"))
	same("a shallow clone", stamp(filepath.Join(others, "shallow")), "")
	run(dir, "git", "tag", "v1.2.3")
	same("a release", stamp(dir), " -X main.version=1.2.3")
	run(dir, "git", "tag", "-d", "v1.2.3")
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	same("changed", stamp(dir), " -X main.stampedModified=true")
	os.Remove(filepath.Join(dir, "new"))
	// Another owner: git itself refuses, and so does the Go tool's own stamp.
	if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, 12345, 12345))
	}); err != nil {
		t.Log(fmt.Sprint("not root, another owner is left out: ", err))
		return
	}
	same("another owner's", stamp(dir), "")
}

// TestBuildStampOfArchive: an archive that git made has no .git, and is known by what
// git wrote into the script.
func TestBuildStampOfArchive(t *testing.T) {
	for _, tool := range []string{"git", "sh", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here", tool)
		}
	}
	dir := t.TempDir()
	sh := func(script string) string {
		t.Helper()
		cmd := exec.Command("sh", "-euc", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME=", "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir),
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_COMMITTER_DATE=2026-01-02T03:04:05+01:00")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, name := range []string{".gitattributes", "scripts/build-stamp.sh"} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, "one", name)), 0o755), os.WriteFile(filepath.Join(dir, "one", name), text, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	commit := sh("cd one && git init -q && git add . && git commit -q -m one && git rev-parse HEAD")
	got := sh("mkdir two && git -C one archive HEAD | tar x -C two && cd two && sh scripts/build-stamp.sh")
	if want := "-X main.stampedCommit=" + commit + " -X main.stampedDate=2026-01-02T03:04:05+01:00"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
