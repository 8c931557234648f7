// Package kernels holds the sources of the Metal kernels. Each *.metal that is
// not a *.h.metal is a library, compiled at run time from the text that Source
// returns.
package kernels

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.metal
var files embed.FS

const (
	suffix       = ".metal"
	headerSuffix = ".h.metal"
)

// Names returns the names of the libraries in order, without their suffix.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the embedded folder has a root
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), headerSuffix) {
			continue
		}
		names = append(names, strings.TrimSuffix(e.Name(), suffix))
	}
	return names
}

// Source returns the one text of a library: each #include "x.h.metal" is
// replaced by that file where it is first named and dropped elsewhere.
// #line directives keep the names and lines of the files in messages.
func Source(name string) (string, error) {
	return expand(files, name+suffix)
}

func expand(files fs.ReadFileFS, file string) (string, error) {
	var text strings.Builder
	if err := appendFile(&text, files, file, map[string]bool{}); err != nil {
		return "", err
	}
	return text.String(), nil
}

func appendFile(text *strings.Builder, files fs.ReadFileFS, file string, seen map[string]bool) error {
	seen[file] = true
	data, err := files.ReadFile(file)
	if err != nil {
		return fmt.Errorf("metal: kernels: %w", err)
	}
	fmt.Fprintf(text, "#line 1 %q\n", file)
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		var included string
		if n, _ := fmt.Sscanf(strings.TrimSpace(line), "#include %q", &included); n == 0 {
			text.WriteString(line)
			continue
		}
		if !seen[included] {
			if err := appendFile(text, files, included, seen); err != nil {
				return fmt.Errorf("%s:%d: %w", file, number, err)
			}
		}
		fmt.Fprintf(text, "#line %d %q\n", number+1, file)
	}
	if !strings.HasSuffix(text.String(), "\n") {
		text.WriteString("\n")
	}
	return nil
}
