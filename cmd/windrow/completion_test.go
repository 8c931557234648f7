package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"windrow/backend"
)

// completed runs __complete and returns the words of its candidates and its last line,
// where that is about paths.
func completed(t testing.TB, words ...string) (list []string, paths string) {
	t.Helper()
	var out, stderr strings.Builder
	if code := run(append([]string{"windrow", completeName, "--"}, words...), nil, &out, &stderr); code != exitOK || stderr.Len() > 0 {
		t.Fatalf("%q: exit code %d: %s", words, code, stderr.String())
	}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, ":") {
			paths = line
			continue
		}
		word, _, _ := strings.Cut(line, "\t")
		list = append(list, word)
	}
	return list, paths
}

func TestComplete(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const snapshot = ".cache/models--me--small/snapshots/0123456789012345678901234567890123456789/"
	t.Setenv("HF_HUB_CACHE", filepath.Join(dir, ".cache"))
	// Of two .gguf files one is whole.
	const ggufs, two = ".cache/models--me--two/", "1123456789012345678901234567890123456789"
	if err := os.MkdirAll(".cache/.windrow/manifests/models--me--two", 0o755); err != nil {
		t.Fatal(err)
	}
	manifest := `{"format": 1, "repo": "me/two", "commit": "` + two + `", "files": [{"path": "a-Q4_0.gguf", "size": 2, "hash": "` + two + `"}, {"path": "a-Q8_0.gguf", "size": 9, "hash": "` + two + `"}]}`
	if err := os.WriteFile(".cache/.windrow/manifests/models--me--two/"+two+".json", []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"own/config.json", "own/sub/config.json", "text/notes.txt", ".hidden/config.json", "small.gguf",
		ggufs + "snapshots/" + two + "/a-Q4_0.gguf", snapshot + "config.json", snapshot + "model.safetensors", snapshot + "tokenizer.json"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		words string // parted by blanks
		want  string // a part in parentheses: among others
		paths string
	}{
		{"gen", "generate", ""},
		{"he", "help", ""},
		{"--v", "--version", ""},
		{"nonsense ", "", ""},
		{"nonsense --mo", "", ""},
		{"help gen", "generate", ""},
		{"help eval ", "gsm8k pcache", ""},
		{"eval ", "gsm8k pcache", ""},
		{"eval gsm8k --da", "--data", ""},
		{"bench s", "serve", ""},
		{"bench --shape qwen3-0", "qwen3-0.6b", ""},
		{"bench serve --shape qwen3-0", "qwen3-0.6b", ""},
		{"generate --mode ", "auto ar verified wedlm", ""},
		{"generate --mode=v", "--mode=verified", ""},
		{"generate -mode v", "verified", ""},
		{"run --mode v", "verified", ""},
		{"generate a --mode v", "verified", ""},
		{"generate --json --mode v", "verified", ""},
		{"generate --raw ", "", ""},
		{"generate -- --mo", "", ""},
		{"generate --server ", "auto off unix:", ""},
		{"ps --server ", "unix:", ""},
		{"generate --mod", "--mode --model", ""},
		{"generate --mode ar --mod", "--model", ""},
		{"generate -m x --mod", "--mode", ""},
		{"generate --kern", "", ""},
		{"eval gsm8k --mode ar --mod", "--mode --model", ""},
		{"eval pcache --data ", "mixed", ":files"},
		{"doctor --backend ", "cuda metal all", ""},
		{"serve --session-d", "--session-dir --session-disk", ""},
		{"serve --session-dir ", "none", ":folders"},
		{"serve --tls-cert ", "", ":files"},
		{"serve --model ", "own small.gguf hf:me/small@0123456789012345678901234567890123456789 hf:me/two@" + two + ":a-Q4_0.gguf", ":files"},
		{"serve --model a=o", "a=own", ":files"},
		{"serve --model=o", "--model=own", ":files"},
		{"serve --model own/", "own/sub", ":files"},
		{"serve --model nowhere/", "", ":files"},
		{"generate --model " + dir + "/s", dir + "/small.gguf", ":files"},
		{"inspect t", "tiny-gsm", ":files"},
		{"generate --model hf:me/s", "hf:me/small@0123456789012345678901234567890123456789", ":files"},
		{"path hf:me/s", "hf:me/small@0123456789012345678901234567890123456789", ""},
		{"path hf:me/t", "hf:me/two@" + two + ":a-Q4_0.gguf", ""},
		{"rm hf:me/t", "hf:me/two@" + two, ""},
		{"verify ", "hf:me/small@0123456789012345678901234567890123456789 hf:me/two@" + two, ""},
		{"pull hf:me/s", "hf:me/small@0123456789012345678901234567890123456789", ":files"},
		{"generate --draft mo", "model:", ""},
		{"completion ", "bash zsh fish powershell", ""},
		{"__comp", "", ""},
	} {
		got, paths := completed(t, strings.Split(c.words, " ")...)
		want := strings.Fields(c.want)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) || paths != c.paths {
			t.Errorf("%q: %q %q, want %q %q", c.words, got, paths, want, c.paths)
		}
	}
}

// walk calls visit with every command that is shown, and its names from the program's on.
func walk(commands []*cli.Command, above []string, visit func(c *cli.Command, path []string)) {
	for _, c := range commands {
		if !c.Hidden {
			path := append(above[:len(above):len(above)], c.Name)
			visit(c, path)
			walk(c.Subcommands, path, visit)
		}
	}
}

// TestCompleteEverything: each command, flag and known value is found by its beginning,
// and no entry of the table of values is about a flag that is not there.
func TestCompleteEverything(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	walk(newApp(nil, io.Discard, io.Discard).Commands, nil, func(c *cli.Command, path []string) {
		beginning := append(path[:len(path)-1:len(path)-1], c.Name[:2])
		if got, _ := completed(t, beginning...); !slices.Contains(got, c.Name) {
			t.Errorf("%q: %q lacks %s", beginning, got, c.Name)
		}
		flags, _ := completed(t, append(path, "--")...)
		for _, f := range c.VisibleFlags() {
			name := f.Names()[0]
			if !slices.Contains(flags, "--"+name) {
				t.Errorf("%q: %q lacks --%s", path, flags, name)
			}
			key := c.Name + " " + name
			if _, ok := wordsOfFlags[key]; !ok {
				key = name
			}
			used[key] = true
			got, _ := completed(t, append(path, "--"+name, "")...)
			for _, word := range wordsOfFlags[key] {
				if _, isBool := f.(*cli.BoolFlag); !isBool && !slices.Contains(got, word) {
					t.Errorf("%q --%s: %q lacks %s", path, name, got, word)
				}
			}
		}
	})
	for key := range maps.Keys(wordsOfFlags) {
		if !used[key] {
			t.Errorf("%q: no command has this flag", key)
		}
	}
	for _, mode := range wordsOfFlags["mode"] {
		if _, err := parseMode(mode); err != nil {
			t.Error(err)
		}
	}
	for _, name := range wordsOfFlags["kv-dtype"] {
		if _, err := backend.ParseKVType(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range wordsOfFlags["entropy-threshold"] {
		if _, err := parseThreshold(name); err != nil {
			t.Error(err)
		}
	}
}

// FuzzComplete: whatever stands in a line, each candidate begins with what is written.
func FuzzComplete(f *testing.F) {
	for _, line := range []string{"", "generate\x00--mode\x00", "help\x00help\x00", "serve\x00--model\x00a=b=", "eval\x00\x00", "--\x00--", "-\x00-=", "bench\x00--=\x00"} {
		f.Add(line)
	}
	app := newApp(nil, io.Discard, io.Discard)
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, "\x00")
		for _, c := range complete(app, words).candidates {
			if !strings.HasPrefix(c.word, words[len(words)-1]) {
				t.Errorf("%q: %q", words, c.word)
			}
		}
	})
}
