package kernels

import (
	"bytes"
	"slices"
	"strings"
)

// Files lists the source files that have an image for a compute capability.
func Files(major, minor int) []string {
	entries, err := images.ReadDir(".")
	if err != nil {
		return nil
	}
	var files []string
	for _, e := range entries {
		file, _, _ := strings.Cut(e.Name(), ".")
		if _, err := imageName(file, major, minor); err == nil && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}

// Names lists the kernels of a file's image for a compute capability.
func Names(file string, major, minor int) ([]string, error) {
	text, _, err := image(file, major, minor)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, part := range bytes.Split(text, entry)[1:] {
		kernel, _, _ := bytes.Cut(part, []byte("("))
		names = append(names, string(kernel))
	}
	return names, nil
}
