package emulator

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unsafe"
)

// library compiles a file of testdata.
func library(t testing.TB, file string, b Build) *Library {
	t.Helper()
	Available(t)
	source, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Compile(fmt.Sprintf("#line 1 %q\n%s", file, source), b)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// memory binds the values at an index.
func memory[T any](index int, v []T) Arg {
	return Arg{Index: index, Pointer: unsafe.Pointer(&v[0]), Length: len(v) * int(unsafe.Sizeof(v[0]))}
}

// structure binds a parameter struct.
func structure[T any](index int, v T) Arg {
	return Arg{Index: index, Bytes: unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))}
}

func kernelOf(t testing.TB, l *Library, name string) *Kernel {
	t.Helper()
	k, err := l.Kernel(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
