package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"windrow/checkpoint"
	"windrow/models/tinygsm"
	"windrow/tokenizer"
)

// hostileTexts are what a model file may say to harm a terminal or its reader.
var hostileTexts = map[string]string{
	"an escape sequence": "\x1b]0;title\x07\x1b[2J",
	"a NUL":              "a\x00b",
	"a newline":          "first\nwindrow: second",
	"8-bit controls":     "\u009b2J\u0085",
	"reordered text":     "\u202egsj.exe",
	"5,000 characters":   strings.Repeat("A", 5000),
	"a quote":            `"'%s%n` + "`",
}

// places lists the ways to put a text into a JSON value: for every string (and
// other scalar) and every key, functions that set it and that undo it. Of long
// lists and objects the first and the last stand for all.
func places(v any, at string, visit func(at string, set func(string), undo func())) {
	few := func(n, most int) []int {
		if n > most {
			return []int{0, n - 1}
		}
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		return all
	}
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		for _, i := range few(len(keys), 32) {
			key, old := keys[i], v[keys[i]]
			var now string
			visit(at+"."+key+" (key)", func(s string) { delete(v, key); now = s; v[s] = old }, func() { delete(v, now); v[key] = old })
			visit(at+"."+key, func(s string) { v[key] = s }, func() { v[key] = old })
			places(old, at+"."+key, visit)
		}
	case []any:
		for _, i := range few(len(v), 2) {
			old := v[i]
			visit(fmt.Sprintf("%s[%d]", at, i), func(s string) { v[i] = s }, func() { v[i] = old })
			places(old, fmt.Sprintf("%s[%d]", at, i), visit)
		}
	}
}

// checkShown compares what a terminal would get with what it should.
func checkShown(t *testing.T, what, shown string, lines bool) {
	t.Helper()
	for i, r := range shown {
		if !strconv.IsPrint(r) && !(lines && r == '\n') {
			t.Errorf("%s: %q at byte %d of %.300q", what, r, i, shown)
			return
		}
	}
	for line := range strings.Lines(shown) {
		if len(line) > 500 {
			t.Errorf("%s: a line of %d bytes: %.120q", what, len(line), line)
			return
		}
	}
}

// tryModel opens a model from memory with its tokenizer, and looks at all of
// its tensors; every error and all output must be fit for a terminal.
func tryModel(t *testing.T, what string, c *checkpoint.Checkpoint, err error) {
	t.Helper()
	if err != nil {
		checkShown(t, what+": error", err.Error(), false)
		return
	}
	defer c.Close()
	if _, err := tokenizer.Load(c); err != nil {
		checkShown(t, what+": error", err.Error(), false)
	}
	in, err := newInspection(c, "m", true)
	if err != nil {
		checkShown(t, what+": error", err.Error(), false)
		return
	}
	var table, object bytes.Buffer
	if err := in.table(&table); err != nil {
		t.Error(err)
	}
	if err := writeJSON(&object, in); err != nil {
		t.Error(err)
	}
	checkShown(t, what+": inspect", table.String(), true)
	checkShown(t, what+": inspect --json", object.String(), true)
}

// TestHostileFolder puts hostile texts in the place of every string, number
// and key of every file of a model folder.
func TestHostileFolder(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	files := tinygsm.Files()
	files["generation_config.json"] = []byte(`{"eos_token_id": [4094], "max_new_tokens": 5, "do_sample": true, "temperature": 0.5, "top_k": 1}`)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, wrap := files[name], func(b []byte) []byte { return b }
			switch filepath.Ext(name) {
			case ".json":
			case ".safetensors":
				n := binary.LittleEndian.Uint64(text)
				body := text[8+n:]
				text, wrap = text[8:8+n], func(header []byte) []byte {
					return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header, body)
				}
			default:
				t.Skip("no JSON")
			}
			d := json.NewDecoder(bytes.NewReader(text))
			d.UseNumber()
			var v any
			if err := d.Decode(&v); err != nil {
				t.Fatal(err)
			}
			tried, round := 0, 0
			places(v, "", func(at string, set func(string), undo func()) {
				round++
				whats := slices.Sorted(maps.Keys(hostileTexts))
				for i, what := range whats {
					// Each place meets two of them, in turn; with WINDROW_SLOW all.
					if turn := (i + 2*round) % len(whats); turn > 1 && os.Getenv("WINDROW_SLOW") == "" {
						continue
					}
					set(hostileTexts[what])
					changed, err := json.Marshal(v)
					undo()
					if err != nil {
						t.Fatal(err)
					}
					mutant := maps.Clone(files)
					mutant[name] = wrap(changed)
					c, err := checkpoint.New(mutant)
					tryModel(t, fmt.Sprintf("%s%s: %s", name, at, what), c, err)
					tried++
				}
			})
			if tried < 2*5 {
				t.Errorf("only %d tried", tried)
			}
		})
	}
}

// TestHostileGGUF does the same with strings of a GGUF file's metadata and
// with its tensors' names.
func TestHostileGGUF(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	metadata, tensors := tinyGGUF(t)
	try := func(what string) {
		t.Helper()
		var b bytes.Buffer
		if err := checkpoint.WriteGGUF(&b, metadata, tensors); err != nil {
			return // refused by the writer already
		}
		c, err := checkpoint.NewGGUF(b.Bytes())
		tryModel(t, what, c, err)
	}
	for what, hostile := range hostileTexts {
		for i := range metadata {
			old := metadata[i]
			metadata[i].Key = hostile
			try(fmt.Sprintf("key %s: %s", old.Key, what))
			metadata[i] = old
			metadata[i].Value = hostile
			try(fmt.Sprintf("value of %s: %s", old.Key, what))
			if list, ok := old.Value.([]string); ok {
				list = slices.Clone(list)
				list[len(list)/2] = hostile
				metadata[i].Value = list
				try(fmt.Sprintf("an item of %s: %s", old.Key, what))
			}
			metadata[i] = old
		}
		for _, i := range []int{0, len(tensors) / 2, len(tensors) - 1} {
			old := tensors[i].Name
			tensors[i].Name = hostile
			try(fmt.Sprintf("tensor %s: %s", old, what))
			tensors[i].Name = "blk.0." + hostile
			try(fmt.Sprintf("tensor %s: blk.0 and %s", old, what))
			tensors[i].Name = old
		}
	}
}

// TestHostileProgram: what comes through the program itself, a chat template's
// errors too, is one line that prints.
func TestHostileProgram(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	for what, hostile := range hostileTexts {
		for name, text := range map[string]string{
			"config.json":         hostile,
			"tokenizer.json":      hostile,
			"chat_template.jinja": "{{ raise_exception('" + hostile + "') }}",
			"model.safetensors":   hostile + "        ",
		} {
			dir := t.TempDir()
			files := tinygsm.Files()
			files[name] = []byte(text)
			for name, data := range files {
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var stdout, stderr bytes.Buffer
			code := run([]string{"windrow", "generate", "--backend", "cpu", "--threads", "1", "-n", "1", "--model", dir, "hi"}, strings.NewReader(""), &stdout, &stderr)
			if code != exitFailure || stdout.Len() != 0 || strings.Count(stderr.String(), "\n") != 1 || len(stderr.String()) > maxErrorLine+100 {
				t.Errorf("%s in %s: exit code %d, %q, %.300q", what, name, code, &stdout, &stderr)
			}
			for _, r := range strings.TrimSuffix(stderr.String(), "\n") {
				if !strconv.IsPrint(r) {
					t.Errorf("%s in %s: %q in %.300q", what, name, r, &stderr)
					break
				}
			}
		}
	}
}

func TestEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"plain ü 漢 🙂 'single' \"double\" \\": "plain ü 漢 🙂 'single' \"double\" \\",
		"\x1b[2J\x00\x7f\t":                  `\x1b[2J\x00\x7f\t`,
		"\u009b\u202e\ufeff":                 `\u009b\u202e\ufeff`,
		"\xff\xc3":                           `\xff\xc3`,
		"\ufffd":                             "\ufffd",
		"":                                   "",
	} {
		if got := escaped(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := oneLine("a\nb\r\n" + strings.Repeat("ü", 5000) + "end"); !strings.HasPrefix(got, "a; b; ü") || !strings.HasSuffix(got, "üend") || len(got) > maxErrorLine {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	var b bytes.Buffer
	text := "a\x1b\u0085\u202eü🙂\U000e0001"
	if err := writeJSONLine(&b, text); err != nil || b.String() != `"a\u001b\u0085\u202eü🙂`+"\U000e0001\"\n" {
		t.Errorf("%q, %v", &b, err)
	}
	var back string
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back != text {
		t.Errorf("read back %q, %v", back, err)
	}
}
