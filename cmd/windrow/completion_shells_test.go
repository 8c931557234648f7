//go:build unix

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// shellFolder is a folder with the script of a shell, some models, and a "windrow" that
// completes as this program does and else prints its arguments.
func shellFolder(t *testing.T, shell string) (dir string, env []string) {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		t.Skipf("no %s here", shell)
	}
	dir = t.TempDir()
	var script, stderr strings.Builder
	if code := run([]string{"windrow", "completion", shell}, nil, &script, &stderr); code != exitOK {
		t.Fatal(stderr.String())
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A model in the cache, whose name has a colon, at which bash parts words.
	caches := t.TempDir()
	cached, commit := filepath.Join(caches, "huggingface", "hub", "models--me--small"), strings.Repeat("0123456789", 4)
	for _, name := range []string{"config.json", "model.safetensors"} {
		err := errors.Join(os.MkdirAll(filepath.Join(cached, "snapshots", commit), 0o755), os.WriteFile(filepath.Join(cached, "snapshots", commit, name), []byte("{}"), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.MkdirAll(filepath.Join(cached, "refs"), 0o755),
		os.WriteFile(filepath.Join(cached, "refs", "main"), []byte(commit), 0o644),
		os.MkdirAll(filepath.Join(dir, "models", "My 8B"), 0o755),
		os.MkdirAll(filepath.Join(dir, "bin"), 0o755),
		os.WriteFile(filepath.Join(dir, "models", "My 8B", "config.json"), []byte("{}"), 0o644),
		os.WriteFile(filepath.Join(dir, "words.txt"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "script"), []byte(script.String()), 0o644),
		// testscript runs the program where the test binary has its name.
		os.MkdirAll(filepath.Join(dir, "self"), 0o755),
		os.Symlink(self, filepath.Join(dir, "self", "windrow")),
		os.WriteFile(filepath.Join(dir, "bin", "windrow"), []byte(`#!/bin/sh
case $1 in
__complete) exec "${0%/bin/windrow}/self/windrow" "$@" ;;
*) printf '<%s>' "$@" ;;
esac
`), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+dir,
		"XDG_CONFIG_HOME="+dir+"/.config", "XDG_DATA_HOME="+dir+"/.data", "XDG_CACHE_HOME="+caches, "HF_HOME=", "HF_HUB_CACHE=", "HUGGINGFACE_HUB_CACHE=", "TERM=dumb", "LC_ALL=C.UTF-8")
	return dir, env
}

// lineCases are lines as they stand before the cursor, and what they may become: the
// whole last words.
var lineCases = []struct{ line, want string }{
	{"windrow gen", "generate"},
	{"windrow eval ", "gsm8k pcache"},
	{"windrow generate --mode v", "verified"},
	{"windrow generate --mode=v", "--mode=verified"},
	{"windrow bench --shape qwen3-0", "qwen3-0.6b"},
	{"windrow generate --server u", "unix:"},
	{"windrow inspect models/M", "models/My 8B"},
	{"windrow inspect --model=models/M", "--model=models/My 8B"},
	{"windrow serve --model a=models/M", "a=models/My 8B"},
	{"windrow serve --tls-cert=wo", "--tls-cert=words.txt"},
	{"windrow serve --session-dir ", "none models bin self"},
	{"windrow nonsense ", ""},
	{"windrow path ", "hf:me/small"},
	{"windrow path hf:me/s", "hf:me/small"},
	{"windrow rm hf:", "hf:me/small"},
	{"windrow generate --model hf:me/s", "hf:me/small"},
	{"windrow generate --model=hf:me/s", "--model=hf:me/small"},
}

// TestCompletionBash runs the function as bash calls it: words are parted at = and :,
// and a candidate takes the place of the last part.
func TestCompletionBash(t *testing.T) {
	t.Parallel()
	dir, env := shellFolder(t, "bash")
	for _, c := range lineCases {
		var parts []string
		for _, word := range strings.Split(c.line, " ") {
			last := ""
			for _, r := range word {
				if sep := r == '=' || r == ':'; last != "" && sep != strings.ContainsAny(last, "=:") {
					parts, last = append(parts, last), ""
				}
				last += string(r)
			}
			parts = append(parts, last)
		}
		kept := c.line[strings.LastIndexByte(c.line, ' ')+1:]
		kept = kept[:strings.LastIndexAny(kept, "=:")+1]
		if strings.ContainsAny(parts[len(parts)-1], "=:") {
			kept = kept[:len(kept)-1] + parts[len(parts)-1]
		}
		cmd := exec.Command("bash", append([]string{"--norc", "-uc", `compopt() { :; }; . ./script
			COMP_LINE=$1; COMP_POINT=${#1}; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
			_windrow; [ ${#COMPREPLY[@]} = 0 ] || printf '%s\n' "${COMPREPLY[@]}"`, "bash", c.line}, parts...)...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%q: %v: %s", c.line, err, out)
		}
		var got []string
		for line := range strings.Lines(string(out)) {
			got = append(got, kept+strings.TrimSuffix(line, "\n"))
		}
		checkWords(t, c.line, got, c.want)
	}
}

func TestCompletionFish(t *testing.T) {
	t.Parallel()
	dir, env := shellFolder(t, "fish")
	for _, c := range lineCases {
		cmd := exec.Command("fish", "--no-config", "-c", "source ./script; complete -C $argv[1]", c.line)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil && len(out) > 0 {
			t.Errorf("%q: %v: %s", c.line, err, out)
		}
		var got []string
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			got = append(got, word)
		}
		checkWords(t, c.line, got, c.want)
	}
}

// checkWords compares candidates with those wanted, in any order; a model folder may be
// named as a path, too.
func checkWords(t *testing.T, line string, got []string, want string) {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(want, "My 8B", "My_8B"))
	for i := range got {
		got[i] = strings.TrimSuffix(strings.NewReplacer("My 8B", "My_8B", `My\ 8B`, "My_8B").Replace(got[i]), "/")
	}
	slices.Sort(words)
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, words) {
		t.Errorf("%q: %q, want %q", line, got, words)
	}
}

// TestCompletionKeys presses tab in bash and zsh, and looks at the line that is then run.
func TestCompletionKeys(t *testing.T) {
	t.Parallel()
	for shell, c := range map[string]struct{ args, start string }{
		"bash": {"--norc --noprofile -i", "PS1='ready> '; . ./script"},
		"zsh":  {"-f -i", "PS1='ready> '; autoload -U compinit; compinit -u -D; . ./script"},
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			dir, env := shellFolder(t, shell)
			cmd := exec.Command(shell, strings.Fields(c.args)...)
			cmd.Dir, cmd.Env = dir, env
			terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 200})
			if err != nil {
				t.Skip(err)
			}
			defer func() {
				terminal.Close()
				cmd.Process.Kill()
				cmd.Wait()
			}()
			screen := make(chan []byte, 64)
			go func() {
				defer close(screen)
				for {
					b := make([]byte, 4096)
					n, err := terminal.Read(b)
					if err != nil {
						return
					}
					screen <- b[:n]
				}
			}()
			var seen bytes.Buffer
			shows := func(what string, within time.Duration) bool {
				t.Helper()
				limit := time.After(within)
				for !strings.Contains(seen.String(), what) {
					select {
					case b, ok := <-screen:
						if !ok {
							t.Fatalf("%s ended: %q", shell, seen.String())
						}
						seen.Write(b)
					case <-limit:
						return false
					}
				}
				seen.Reset()
				return true
			}
			press := func(keys string) {
				if _, err := io.WriteString(terminal, keys); err != nil {
					t.Fatal(err)
				}
			}
			press(c.start + "; echo set\"\"tled\n")
			if !shows("settled", 2*time.Minute) {
				t.Fatalf("%s is not ready: %q", shell, seen.String())
			}
			for _, c := range []struct{ keys, want string }{
				{"windrow version --js\t", "<version><--json>"},
				{"windrow inspect --json --model=models/M\t", "<inspect><--json><--model=models/My 8B"},
				{"windrow completion pow\t", "<completion><powershell>"},
				{"windrow generate --no-think --mode=ver\t --model nowhere x", "<generate><--no-think><--mode=verified><--model><nowhere><x>"},
				{"windrow generate --server un\tsock x", "<generate><--server><unix:sock><x>"},
				{"windrow path hf:me/s\t", "<path><hf:me/small>"},
				{"windrow generate --model hf:me/s\t x", "<generate><--model><hf:me/small><x>"},
				{"windrow generate --model=hf:me/s\t x", "<generate><--model=hf:me/small><x>"},
				{"windrow serve --session-dir ~/mod\t", "<serve><--session-dir><" + dir + "/models"},
			} {
				// What follows a tab too soon may end the completion: on a busy machine it is typed
				// again, more slowly.
				shown := false
				for pause := 200 * time.Millisecond; !shown && pause < time.Minute; pause *= 10 {
					press(c.keys)
					time.Sleep(pause)
					press("\r")
					if shown = shows(c.want, 20*time.Second); !shown {
						press("\x03")
					}
				}
				if !shown {
					t.Fatalf("%s does not show %q: %q", shell, c.want, seen.String())
				}
			}
		})
	}
}
