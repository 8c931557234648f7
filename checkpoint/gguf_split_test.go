package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"windrow/internal/testhelp"
)

// splitGGUF cuts smallGGUF into files of as many tensors; edit may change a part's
// keys and tensors.
func splitGGUF(t testing.TB, counts []int, edit func(no int, keys []GGUFField, tensors []GGUFTensor) ([]GGUFField, []GGUFTensor)) map[string][]byte {
	t.Helper()
	metadata, tensors := smallGGUF()
	files := map[string][]byte{}
	all := len(tensors)
	for no, n := range counts {
		keys := []GGUFField{{"split.no", uint16(no)}, {"split.count", uint16(len(counts))}, {"split.tensors.count", int32(all)}}
		if no == 0 {
			keys = append(keys, metadata...)
		}
		part := tensors[:n:n]
		tensors = tensors[n:]
		if edit != nil {
			keys, part = edit(no, keys, part)
		}
		files[ggufPartName("m", no, len(counts))] = writeGGUF(t, keys, part)
	}
	return files
}

func TestSplitGGUF(t *testing.T) {
	metadata, tensors := smallGGUF()
	whole, err := NewGGUF(writeGGUF(t, metadata, tensors))
	if err != nil {
		t.Fatal(err)
	}
	for _, counts := range [][]int{{4}, {1, 3}, {0, 2, 2}, {0, 4}, {2, 0, 2}} { // without tensors in the first: --no-tensor-first-split
		dir := testhelp.Folder(t, splitGGUF(t, counts, nil))
		first := filepath.Join(dir, ggufPartName("m", 0, len(counts)))
		paths := []string{first}
		if link := filepath.Join(t.TempDir(), "link.gguf"); os.Symlink(first, link) == nil { // Windows may not
			paths = append(paths, link)
		}
		for _, path := range paths {
			c, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(c.Names(), whole.Names()) || c.Config().String() != whole.Config().String() {
				t.Errorf("%v: %v of %v", counts, c.Names(), c.Config())
			}
			if in, want := Inspect(c), Inspect(whole); in.Bytes != want.Bytes || in.Tensors != want.Tensors {
				t.Errorf("%v: %d bytes in %d tensors, want %d in %d", counts, in.Bytes, in.Tensors, want.Bytes, want.Tensors)
			}
			if len(Mappings(c)) != len(counts) {
				t.Errorf("%v: %d mappings", counts, len(Mappings(c)))
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	// A whole model under the name of a part.
	dir := testhelp.Folder(t, map[string][]byte{ggufPartName("m", 0, 3): writeGGUF(t, metadata, tensors)})
	if c, err := Open(filepath.Join(dir, ggufPartName("m", 0, 3))); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}

// A Hugging Face cache has a folder of links to files named by their hashes.
func TestSplitGGUFInACache(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"blobs", "snapshots/main"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range splitGGUF(t, []int{1, 3}, nil) {
		if err := os.WriteFile(filepath.Join(root, "blobs", "hash"+name[:7]), data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../blobs/hash"+name[:7], filepath.Join(root, "snapshots/main", name)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	c, err := Open(filepath.Join(root, "snapshots/main", ggufPartName("m", 0, 2)))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestSplitGGUFRefuses(t *testing.T) {
	type parts = map[string][]byte
	first, second, third := ggufPartName("m", 0, 3), ggufPartName("m", 1, 3), ggufPartName("m", 2, 3)
	edited := func(at int, key string, value any) func() parts {
		return func() parts {
			return splitGGUF(t, []int{2, 1, 1}, func(no int, keys []GGUFField, tensors []GGUFTensor) ([]GGUFField, []GGUFTensor) {
				for i := range keys {
					if no == at && keys[i].Key == key {
						keys[i].Value = value
					}
				}
				return keys, tensors
			})
		}
	}
	changed := func(edit func(p parts)) func() parts {
		return func() parts {
			p := splitGGUF(t, []int{2, 1, 1}, nil)
			edit(p)
			return p
		}
	}
	for _, tc := range []struct {
		name, open string
		files      func() parts
		want       string
	}{
		{"the second part", second, changed(func(parts) {}), "is part 2 of 3: want the first one, DIR/" + first},
		{"a missing part", first, changed(func(p parts) { delete(p, third) }), "is the first of 3 parts: part 3 is missing: want DIR/" + third},
		{"another name", "x.gguf", changed(func(p parts) { p["x.gguf"] = p[first] }), "is part 1 of 3: want it under the name NAME-00001-of-00003.gguf, beside the others"},
		{"another count in the name", ggufPartName("m", 0, 2), changed(func(p parts) { p[ggufPartName("m", 0, 2)] = p[first] }), "want it under the name NAME-00001-of-00003.gguf"},
		{"a part twice", first, changed(func(p parts) { p[third] = p[second] }), third + ": says part 2 of 3 with 4 tensors in all: want part 3 of 3 with 4"},
		{"another model's part", first, edited(1, "split.tensors.count", int32(9)), second + ": says part 2 of 3 with 9 tensors in all: want part 2 of 3 with 4"},
		{"a part cut short", first, changed(func(p parts) { p[second] = p[second][:len(p[second])-64] }), second + `: gguf tensor "blk.0.ffn_down.weight"`},
		{"a part that is none", first, changed(func(p parts) { p[second] = []byte("other") }), second + `: gguf file starts with "othe"`},
		{"an empty part", first, changed(func(p parts) { p[second] = nil }), second + ": gguf file starts with"},
		{"a part of text", first, edited(0, "split.no", "one"), "split.no: found one, want a whole number from 0 to 65534"},
		{"half a part", first, edited(0, "split.count", float32(2.5)), "split.count: found 2.5, want a whole number"},
		{"too many", first, edited(0, "split.count", uint32(1<<20)), "split.count: found 1048576, want a whole number from 0 to 65535"},
		{"a part past the last", first, edited(0, "split.no", uint16(7)), "split.no: part 7 of 3 files, want 0 to 2"},
		{"fewer tensors than promised", first, func() parts {
			return splitGGUF(t, []int{2, 1, 1}, func(no int, keys []GGUFField, tensors []GGUFTensor) ([]GGUFField, []GGUFTensor) {
				if no == 2 {
					tensors = nil
				}
				return keys, tensors
			})
		}, "has 3 tensors in 3 parts: want the 4 of split.tensors.count"},
		{"a tensor in two parts", first, func() parts {
			var seen []GGUFTensor
			return splitGGUF(t, []int{2, 1, 1}, func(no int, keys []GGUFField, tensors []GGUFTensor) ([]GGUFField, []GGUFTensor) {
				if seen = append(seen, tensors...); no == 2 {
					tensors = seen[1:2]
				}
				return keys, tensors
			})
		}, third + `: gguf tensor "blk.0.attn_q.weight" stands in ` + first},
	} {
		dir := testhelp.Folder(t, tc.files())
		_, err := Open(filepath.Join(dir, tc.open))
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", tc.name, err)
		}
		testhelp.OneLine(t, tc.name, err, strings.ReplaceAll(tc.want, "DIR/", dir+string(filepath.Separator)))
	}
	dir := testhelp.Folder(t, splitGGUF(t, []int{2, 1, 1}, func(no int, keys []GGUFField, tensors []GGUFTensor) ([]GGUFField, []GGUFTensor) { return keys, tensors }))
	if err := os.Remove(filepath.Join(dir, second)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, second), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Open(filepath.Join(dir, first))
	testhelp.OneLine(t, "a folder for a part", err, second+": want a regular file")
}

// FuzzGGUFPart opens two files of any bytes as parts: no panic, and a model only
// where every tensor lies in one of them.
func FuzzGGUFPart(f *testing.F) {
	files := splitGGUF(f, []int{1, 3}, nil)
	f.Add(files[ggufPartName("m", 0, 2)], files[ggufPartName("m", 1, 2)])
	files = splitGGUF(f, []int{0, 4}, nil)
	f.Add(files[ggufPartName("m", 0, 2)], files[ggufPartName("m", 1, 2)])
	f.Fuzz(func(t *testing.T, first, second []byte) {
		dir := t.TempDir()
		for no, data := range [][]byte{first, second} {
			if err := os.WriteFile(filepath.Join(dir, ggufPartName("m", no, 2)), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c, err := OpenGGUF(filepath.Join(dir, ggufPartName("m", 0, 2)))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("more than one line: %v", err)
			}
			return
		}
		defer c.Close()
		if in := Inspect(c); in.Bytes > int64(len(first)+len(second)) {
			t.Fatalf("%d bytes of tensors in files of %d", in.Bytes, len(first)+len(second))
		}
	})
}
