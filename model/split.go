package model

import (
	"fmt"
	"strings"

	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
	"windrow/quant"
)

// cut is a tensor of a model with how several devices share it: one that its
// architecture does not know is whole on each.
func cut(c *checkpoint.Config, name string, t backend.Tensor) backend.Tensor {
	p, ok := architecture.Of(c).Find(c, name)
	if !ok {
		t.Split, t.Sections = backend.SplitNone, nil
		return t
	}
	return p.Cut(c, t)
}

// CheckDevices reports whether n devices can share a model: whole heads, and
// whole groups or blocks of what is cut by inputs.
func CheckDevices(src checkpoint.Source, n int) error {
	if n <= 1 {
		return nil
	}
	err := sharedBy(src, n)
	if err == nil {
		return nil
	}
	var fits []string
	for k := 1; k <= src.Config().KVHeads; k++ {
		if sharedBy(src, k) == nil {
			fits = append(fits, fmt.Sprint(k))
		}
	}
	return fmt.Errorf("%d GPUs cannot share this model: %w; it runs on %s", n, err, strings.Join(fits, ", "))
}

// sharedBy says why n devices cannot share a model.
func sharedBy(src checkpoint.Source, n int) error {
	c := src.Config()
	for _, d := range architecture.Of(c).Shared {
		if count := d.Of(c); count%n != 0 {
			return fmt.Errorf("%d %s do not divide by %d", count, d.Name, n)
		}
	}
	for _, name := range src.Names() {
		t, ok := src.Tensor(name)
		if !ok || len(t.Shape) < 2 {
			continue
		}
		if t = cut(c, name, t); t.Split == backend.SplitInputs {
			if err := t.CheckInputs(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// DeviceBytes is what the weights of a source take on each of n devices, types
// without kernels there converted, as quant.Convert does with exact.
func DeviceBytes(src checkpoint.Source, n int, exact bool) (bytes int64) {
	for _, name := range src.Names() {
		t, ok := src.Tensor(name)
		if !ok {
			continue
		}
		whole := quant.ConvertedBytes(t, exact)
		if cut(src.Config(), name, t).Split != backend.SplitNone {
			whole = (whole + n - 1) / n
		}
		bytes += int64(whole)
	}
	return bytes
}
