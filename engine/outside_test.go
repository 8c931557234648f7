package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"windrow/models/tinygsm"
)

// outsideProgram is the program of the package's comment, in a module of its own.
const outsideProgram = `package main

import (
	"context"
	"fmt"
	"os"

	"windrow/decoder"
	"windrow/engine"
	"windrow/tokenizer"
)

func run(ctx context.Context) error {
	e, err := engine.Open(ctx, "", engine.Options{Backend: "cpu", Measurements: engine.Measurements{Folder: engine.NoFolder}})
	if err != nil {
		return err
	}
	defer e.Close()
	messages := []tokenizer.Message{{Role: "user", Content: "What is 17 + 25?"}}
	for event, err := range e.Generate(ctx, messages, decoder.Options{}) {
		if err != nil {
			return err
		}
		if text, ok := event.(decoder.Text); ok {
			fmt.Print(text)
		}
	}
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
`

// TestOutsideModule builds and runs a program of another module, which has this
// one by replace.
func TestOutsideModule(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no Go tool on this machine: ", err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Skip("not in the repository: ", err)
	}
	// The requirements of this module are the other's, too, so that no version is
	// looked up.
	_, requirements, _ := strings.Cut(string(ours), "\n")
	requirements, _, _ = strings.Cut(requirements, "\ntool ")
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": outsideProgram,
		"go.mod":  fmt.Sprintf("module outside\n%s\nrequire windrow v0.0.0\n\nreplace windrow => %s\n", requirements, root),
		"go.sum":  string(sums),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "outside.exe")
	build := exec.CommandContext(t.Context(), tool, "build", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false", "GOPROXY=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if err != nil || string(out) != answer {
		t.Errorf("printed %q, %v, want %q", out, err, answer)
	}
}
