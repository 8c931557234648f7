package kernels

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// instructionSets are those that names of files have, by architecture: the tables
// but the reference.
var instructionSets = map[string][]string{
	"amd64": {"avx2", "avxvnni", "avx512", "avx512bf16", "amx"},
	"arm64": {"neon", "neondot", "neoni8mm"},
}

// fileName is a name in the grammar WHAT[_ISA][_OS][_ARCH][_test].EXT. Assembly and
// its headers are of an architecture; what several instruction sets of it share, or
// all its processors run, has no ISA.
type fileName struct{ what, isa, arch string }

// nameOf reads a name; the error says what is wrong with it.
func nameOf(file string) (n fileName, err error) {
	ext := filepath.Ext(file)
	stem := strings.TrimSuffix(file, ext)
	if ext == ".go" {
		stem = strings.TrimSuffix(stem, "_test")
	}
	parts := strings.Split(stem, "_")
	last := func() string { return parts[len(parts)-1] }
	if instructionSets[last()] != nil {
		n.arch, parts = last(), parts[:len(parts)-1]
	} else if ext != ".go" {
		return n, fmt.Errorf("%s: %s files are of an architecture: want …_amd64%s or …_arm64%s", file, ext, ext, ext)
	}
	if len(parts) > 1 && slices.Contains([]string{"linux", "other"}, last()) {
		parts = parts[:len(parts)-1]
	}
	if len(parts) > 1 && slices.Contains(instructionSets[n.arch], last()) {
		n.isa, parts = last(), parts[:len(parts)-1]
	}
	for _, p := range parts {
		for arch, sets := range instructionSets {
			if p == "" || p == arch || slices.Contains(sets, p) {
				return n, fmt.Errorf("%s: %q is out of place: want WHAT[_ISA][_OS][_ARCH]%s", file, p, ext)
			}
		}
	}
	n.what = strings.Join(parts, "_")
	return n, nil
}

func TestFileNames(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		switch filepath.Ext(f.Name()) {
		case ".go", ".s", ".h":
			seen++
			if _, err := nameOf(f.Name()); err != nil {
				t.Error(err)
			}
		}
	}
	if seen == 0 {
		t.Skip("needs the package's sources")
	}
	if stray, err := filepath.Glob(filepath.Join("..", "*.[sh]")); err != nil || len(stray) > 0 {
		t.Errorf("assembly belongs into this folder: %v, %v", stray, err)
	}
}

// The reading of names is tested by itself.
func TestNameOf(t *testing.T) {
	for file, want := range map[string]fileName{
		"table.go":                         {what: "table"},
		"table_test.go":                    {what: "table"},
		"pause_arm64.s":                    {what: "pause", arch: "arm64"},
		"read_other.go":                    {what: "read"},
		"quant_dots_avx2_amd64.h":          {what: "quant_dots", isa: "avx2", arch: "amd64"},
		"project_avx512bf16_amd64.s":       {what: "project", isa: "avx512bf16", arch: "amd64"},
		"permit_amx_linux_amd64.go":        {what: "permit", isa: "amx", arch: "amd64"},
		"guard_neon_arm64_test.go":         {what: "guard", isa: "neon", arch: "arm64"},
		"quant_decode_neoni8mm_arm64.s":    {what: "quant_decode", isa: "neoni8mm", arch: "arm64"},
		"project_bf16_guard_amd64_test.go": {what: "project_bf16_guard", arch: "amd64"},
	} {
		if got, err := nameOf(file); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", file, got, err, want)
		}
	}
	for _, file := range []string{"avx2_attend_amd64.s", "attend_avx2.s", "attend_avx2.go", "attend_neon_amd64.s", "avx2_amd64.s",
		"attend_amd64_avx2.s", "avx2_avx512_project_amd64.go", "pause.s", "attend__amd64.s", "amx_permit_linux_amd64.go"} {
		if got, err := nameOf(file); err == nil {
			t.Errorf("%s: taken for %+v", file, got)
		}
	}
}
