// Package kernels holds the CUDA kernels: C++ sources, and the PTX that clang
// makes of them (make cuda-kernels), which is embedded, compressed.
//
// Build with the tag windrow_nogpu to leave the 8.6 MiB out of the binary.
package kernels

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// PTX returns the image of one kernel of a source file (its name without .cu)
// for a compute capability: that of the file's architecture-specific build where
// there is one, else that of 8.0, which the driver translates for every later
// device. The image holds that kernel alone, since the driver translates all
// that it is given.
func PTX(file, kernel string, major, minor int) ([]byte, error) {
	text, name, err := image(file, major, minor)
	if err != nil {
		return nil, err
	}
	return extract(text, kernel, name)
}

// image is the text and the name of the image of a file for a compute
// capability.
func image(file string, major, minor int) (text []byte, name string, err error) {
	if name, err = imageName(file, major, minor); err == nil {
		text, err = read(name)
	}
	return text, name, err
}

// imageName finds the image of a file for a compute capability.
func imageName(file string, major, minor int) (string, error) {
	if major < 8 {
		return "", fmt.Errorf("cuda: compute capability %d.%d: 8.0 or later is needed", major, minor)
	}
	names := []string{file + ".sm_80.ptx"}
	if major == 9 && minor == 0 {
		names = []string{file + ".sm_90a.ptx", names[0]}
	}
	for _, name := range names {
		if f, err := images.Open(name + ".gz"); err == nil {
			f.Close()
			return name, nil
		}
	}
	return "", fmt.Errorf("cuda: no kernels %q for compute capability %d.%d", file, major, minor)
}

// read returns an image's text.
func read(name string) ([]byte, error) {
	data, err := images.ReadFile(name + ".gz")
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("cuda: %s: %w", name, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("cuda: %s: %w", name, err)
	}
	return text, nil
}

var entry = []byte("\n.visible .entry ")

// extract keeps what stands before the first entry, and one entry: entries
// call nothing, since all that they use is inlined.
func extract(text []byte, kernel, name string) ([]byte, error) {
	head := bytes.Index(text, entry)
	at := bytes.Index(text, fmt.Appendf(nil, "%s%s(", entry, kernel))
	if head < 0 || at < 0 {
		return nil, fmt.Errorf("cuda: no kernel %q in %s", kernel, name)
	}
	body := text[at:]
	end := bytes.Index(body, []byte("\n}\n"))
	if end < 0 {
		return nil, fmt.Errorf("cuda: kernel %q in %s has no end", kernel, name)
	}
	return append(bytes.Clone(text[:head]), body[:end+3]...), nil
}
