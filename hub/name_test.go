package hub

import (
	"strings"
	"testing"

	"windrow/internal/testhelp"
)

func TestParseName(t *testing.T) {
	for s, want := range map[string]Name{
		"hf:Qwen/Qwen3-0.6B":                   {"Qwen/Qwen3-0.6B", "main", ""},
		"Qwen/Qwen3-0.6B":                      {"Qwen/Qwen3-0.6B", "main", ""},
		"hf:gpt2":                              {"gpt2", "main", ""},
		"hf:a/b@v1.0":                          {"a/b", "v1.0", ""},
		"hf:a/b@refs/pr/1:Q4_K_M":              {"a/b", "refs/pr/1", "Q4_K_M"},
		"hf:a/b:sub/m-00001-of-00002.gguf":     {"a/b", "main", "sub/m-00001-of-00002.gguf"},
		"hf:a/b@" + strings.Repeat("0123", 10): {"a/b", strings.Repeat("0123", 10), ""},
	} {
		got, err := ParseName(s)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", s, got, err, want)
		}
		if again, err := ParseName(got.String()); err != nil || again != got {
			t.Errorf("%s is written %s, which is read as %+v, %v", s, got, again, err)
		}
	}
	for _, s := range []string{
		"", "hf:", "hf:/", "hf:a/", "hf:/b", "hf:a/b/c", "hf:..", "hf:../..", "hf:a/..", "hf:a..b/c", "hf:a--b/c", "hf:a/b.git", "hf:a/-b", "hf:a/b.", "hf:a-/b", "hf:a./b", "hf:-a/b",
		"hf:a/b\x00", "hf:a/b\n", "hf:a/\x1b[31m", "hf:a/ü", "hf:a/b c", `hf:a\b`, "hf:" + strings.Repeat("a", 300), "hf:a/" + strings.Repeat("b", 300),
		"hf:a/b@", "hf:a/b@..", "hf:a/b@../x", "hf:a/b@/x", "hf:a/b@x/", "hf:a/b@x//y", "hf:a/b@.x", "hf:a/b@x/.y", "hf:a/b@x y", "hf:a/b@x\x07", "hf:a/b@" + strings.Repeat("r", 300), "hf:a/b@x.lock",
		"hf:a/b:", "hf:a/b:../x.gguf", "hf:a/b:/x.gguf", "hf:a/b:x/../y.gguf", "hf:a/b:x.bin/y", "hf:a/b:x:y", "hf:a/b:x y", "hf:a/b:" + strings.Repeat("q", 300), "hf:a/b:x\\y.gguf", "hf:a/b:con.gguf",
	} {
		_, err := ParseName(s)
		testhelp.OneLine(t, s, err, "want")
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%q: the error has %d bytes", s, len(err.Error()))
		}
	}
}

func TestCheckPath(t *testing.T) {
	for _, p := range []string{"config.json", "a/b/c.gguf", "ü.json", ".gitattributes", "a b", strings.Repeat("x", 255)} {
		if err := CheckPath(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{"", ".", "..", "../a", "a/../b", "a/..", "/a", "a//b", "a/", `a\b`, "a:b", "C:", "a\x00", "a\nb", "\u202egpj.json", "con", "a/NUL.txt", "com1", "LPT9.x",
		"a.", "a ", "a/b. ", "a|b", "a?", strings.Repeat("x", 256), strings.Repeat("x/", 600)} {
		testhelp.OneLine(t, p, CheckPath(p), "want")
	}
}

func TestCheckFiles(t *testing.T) {
	d := Digest(strings.Repeat("a", 64))
	for what, files := range map[string][]File{
		"case twins":          {{Path: "a.json", Hash: d}, {Path: "A.json", Hash: d}},
		"twins":               {{Path: "a", Hash: d}, {Path: "a", Hash: d}},
		"a file and a folder": {{Path: "a", Hash: d}, {Path: "A/b", Hash: d}},
		"deep":                {{Path: "x/y", Hash: d}, {Path: "x/y/z/w", Hash: d}},
		"size":                {{Path: "a", Size: -1, Hash: d}},
		"hash":                {{Path: "a", Hash: "../../etc/passwd"}},
		"upper-case hash":     {{Path: "a", Hash: Digest(strings.Repeat("A", 64))}},
		"short hash":          {{Path: "a", Hash: d[:63]}},
		"dots":                {{Path: "../a", Hash: d}},
		"too many":            make([]File, maxManifestFile+1),
	} {
		testhelp.OneLine(t, what, CheckFiles(files))
	}
	if err := CheckFiles([]File{{Path: "a", Hash: d}, {Path: "b/c", Hash: d[:40]}, {Path: "b/d", Hash: d}, {Path: "b-", Hash: d}}); err != nil {
		t.Error(err)
	}
}

func TestPickGGUF(t *testing.T) {
	paths := []string{"config.json", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf", "mmproj-Q8_0.gguf", "big/m-BF16-00002-of-00002.gguf", "big/m-BF16-00001-of-00002.gguf"}
	for want, first := range map[string]string{"Q4_K_M": "m-Q4_K_M.gguf", "q8_0": "m-Q8_0.gguf", "BF16": "big/m-BF16-00001-of-00002.gguf", "m-Q4_K_S.gguf": "m-Q4_K_S.gguf",
		"big/m-BF16-00002-of-00002.gguf": "big/m-BF16-00001-of-00002.gguf"} {
		got, err := PickGGUF(paths, want)
		if err != nil || got[0] != first || strings.HasPrefix(first, "big") != (len(got) == 2) {
			t.Errorf("%s: %q, %v; want %s first", want, got, err, first)
		}
	}
	for _, want := range []string{"Q4_K", "Q4", "", "Q5_K_M", "n.gguf", "m"} {
		_, err := PickGGUF(paths, want)
		testhelp.OneLine(t, want, err, "want one of")
	}
	if got, err := PickGGUF([]string{"a.gguf"}, ""); err != nil || got[0] != "a.gguf" {
		t.Errorf("the only one: %q, %v", got, err)
	}
	_, err := PickGGUF([]string{"config.json"}, "")
	testhelp.OneLine(t, "none", err)
}

// FuzzParseName: a name that is taken stays itself, and its folder in the cache.
func FuzzParseName(f *testing.F) {
	for _, s := range []string{"hf:Qwen/Qwen3-0.6B", "hf:a/b@refs/pr/1:Q4_K_M", "hf:a/b:c/d.gguf", "gpt2", "hf:../..", "hf:a/b@..:x", "00-/0", "a./b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r\x1b\x00") {
				t.Errorf("%q: %q", s, err)
			}
			return
		}
		if again, err := ParseName(n.String()); err != nil || again != n {
			t.Errorf("%q: %+v is read as %+v, %v", s, n, again, err)
		}
		folder := Folder(n.Repo)
		if strings.ContainsAny(folder, "/\\\x00") || strings.Contains(folder, "..") {
			t.Errorf("%q: folder %q", s, folder)
		}
		if repo, ok := repoOf(folder); !ok || repo != n.Repo {
			t.Errorf("%q: the folder %s is of %q", s, folder, repo)
		}
	})
}

// FuzzManifest: what is read is safe to make paths of.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"repo":"a/b","commit":"0123456789012345678901234567890123456789","files":[{"path":"a/b","size":3,"hash":"0123456789012345678901234567890123456789"}]}`))
	f.Add([]byte(`{"format":1,"repo":"../b","commit":"x","files":[{"path":"../a"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest(data)
		if err != nil {
			return
		}
		for _, f := range m.Files {
			if CheckPath(f.Path) != nil || !f.Hash.Valid() || f.Size < 0 {
				t.Errorf("%+v", f)
			}
		}
	})
}
