package kernels

import (
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
		if _, err := PTX(file, major, minor); err == nil && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}
