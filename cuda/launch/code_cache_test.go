package launch

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"windrow/cuda/kernels"
)

// TestCodeCache: what one device has translated another one loads, and what is damaged is
// made anew.
func TestCodeCache(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "kernels")
	k := kernel{file: "rows", name: "rms_norm"}
	load := func() string {
		d := testDevice(t)
		d.Code = CodeCache(folder)
		if _, err := d.function(k); err != nil {
			t.Fatal(err)
		}
		ptx, err := kernels.PTX(k.file, k.name, d.Info.Major, d.Info.Minor)
		if err != nil {
			t.Fatal(err)
		}
		return d.Code.path(d.Context.Info(), ptx)
	}
	path := load()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	load()
	if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("the file was not used: %v %v", info, err)
	}
	wrong := []byte("no code")
	sum := sha256.Sum256(wrong)
	for what, data := range map[string][]byte{
		"empty": {}, "cut off": whole[:len(whole)-1], "a bit": append([]byte{whole[0] ^ 1}, whole[1:]...),
		"what no driver takes": append(sum[:], wrong...),
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		load()
		if again, err := os.ReadFile(path); err != nil || string(again) != string(whole) {
			t.Errorf("%s: %d bytes were kept, %d made: %v", what, len(again), len(whole), err)
		}
	}
	// A folder that cannot be keeps nothing, and hinders nobody.
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	load()
}

func TestCodeCachePrune(t *testing.T) {
	folder := t.TempDir()
	old := time.Now().Add(-codeAge - time.Hour)
	for _, f := range []struct {
		name string
		old  bool
	}{{"a.cubin", true}, {"b.cubin", false}, {"other.txt", true}} {
		path := filepath.Join(folder, f.name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if f.old {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	CodeCache(folder).Prune()
	CodeCache(filepath.Join(folder, "none")).Prune()
	CodeCache("").Prune()
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 2 || left[0].Name() != "b.cubin" || left[1].Name() != "other.txt" {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestWhole: files whose kernels have products of warpgroups are translated whole, and no
// others.
func TestWhole(t *testing.T) {
	products := 0
	for _, file := range kernels.Files(9, 0) {
		names, err := kernels.Names(file, 9, 0)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", file, names, err)
		}
		for _, name := range []string{names[0], names[len(names)-1]} {
			ptx, err := kernels.PTX(file, name, 9, 0)
			if err != nil {
				t.Fatal(err)
			}
			has := bytes.Contains(ptx, []byte("wgmma."))
			if has {
				products++
			}
			// one.cuh and experts_few.cuh have none, and were measured whole; those of clusters were
			// never linked.
			if whole(file) != (has || slices.ContainsFunc([]string{"one_", "few_", "held_", "experts_few_", "delta_few_"}, func(s string) bool { return strings.HasPrefix(file, s) })) {
				t.Errorf("%s of %s has products of warpgroups %t, is translated whole %t", name, file, has, whole(file))
			}
		}
	}
	if products == 0 {
		t.Error("no kernel has products of warpgroups")
	}
}
