package main

import (
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"windrow/internal/manpage"
)

// manFolder has the pages that packages bring.
const manFolder = "../../packaging/man"

// manPages are the pages of this program.
func manPages() map[string][]byte {
	app := newApp(nil, io.Discard, io.Discard)
	app.Setup()
	return manpage.Write(app, manpage.Page{
		Version: version,
		Description: "Windrow runs Qwen3-style language models, with no Python and no cgo, and commits several tokens per forward pass. " +
			"Models are folders as Hugging Face has them, or GGUF files; a small one is embedded and is the default.\n\n" +
			"Flags may stand before and after arguments; -- ends them.",
		Sections: []manpage.Section{
			{Title: "Exit status", Entries: []manpage.Entry{
				{Name: "0", Text: "done"}, {Name: "1", Text: "failure: one line on standard error says what was wrong"},
				{Name: "2", Text: "wrong usage"}, {Name: "130", Text: "interrupted"},
			}},
			{Title: "Environment", Entries: []manpage.Entry{
				{Name: "WINDROW_CACHE", Text: "the folder of what was measured on this machine, or off"},
				{Name: "WINDROW_API_KEY", Text: "the key of a server, for serve and for those that ask one"},
			}},
		},
	})
}

// TestManPages: the pages that are checked in are those of the table of commands; make
// man, which is this test with -update, writes them.
func TestManPages(t *testing.T) {
	pages := manPages()
	there, err := filepath.Glob(filepath.Join(manFolder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		for _, path := range there {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range pages {
			if err := os.WriteFile(filepath.Join(manFolder, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	for _, path := range there {
		if _, ok := pages[filepath.Base(path)]; !ok {
			t.Errorf("%s is of a command that is not there: make man", path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		text, err := os.ReadFile(filepath.Join(manFolder, name))
		if err != nil {
			t.Errorf("%v: make man", err)
		} else if string(text) != string(pages[name]) {
			t.Errorf("%s is not what the commands say: make man", name)
		}
	}
}

// TestManPagesRead: formatters take the pages without a warning, and show every flag.
func TestManPagesRead(t *testing.T) {
	t.Parallel()
	var formatters [][]string
	for _, f := range [][]string{{"groff", "-man", "-ww", "-z", "-Tutf8"}, {"mandoc", "-Tlint", "-Wwarning"}} {
		if _, err := exec.LookPath(f[0]); err == nil {
			formatters = append(formatters, f)
		}
	}
	if len(formatters) == 0 {
		t.Skip("neither groff nor mandoc here")
	}
	var paths []string
	for name := range manPages() {
		paths = append(paths, filepath.Join(manFolder, name))
	}
	slices.Sort(paths)
	for _, f := range formatters {
		out, err := exec.Command(f[0], append(f[1:], paths...)...).CombinedOutput()
		var complaints []string
		for line := range strings.Lines(string(out)) {
			// The date is left out on purpose.
			if !strings.Contains(line, "missing date") {
				complaints = append(complaints, line)
			}
		}
		if len(complaints) > 0 || err != nil && len(out) == 0 {
			t.Errorf("%q: %v:\n%s", f, err, strings.Join(complaints, ""))
		}
	}
}
