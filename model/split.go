package model

import (
	"fmt"
	"strings"

	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
	"windrow/quant"
)

// CheckDevices reports whether n devices can share a model: whole heads, of keys and
// values also the same ones on several devices, and whole groups or blocks of what is cut
// by inputs.
func CheckDevices(src checkpoint.Source, n int) error {
	if n <= 1 {
		return nil
	}
	err := sharedBy(src, n)
	if err == nil {
		return nil
	}
	var fits []string
	for k := 1; k <= src.Config().Heads; k++ {
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
		count := d.Of(c)
		if copied := d.Copied && backend.HeadCopies(count, n) > 1; count%n != 0 && !copied {
			return fmt.Errorf("%d %s do not divide by %d", count, d.Name, n)
		}
	}
	var err error
	eachTensor(src, func(_ *architecture.Tensor, t backend.Tensor) {
		if err == nil && t.Split == backend.SplitInputs && len(t.Shape) >= 2 {
			err = t.CheckInputs(n)
		}
	})
	return err
}

// DeviceBytes is what the weights of a source take on each of n devices, types
// without kernels there converted, as quant.Convert does with exact.
func DeviceBytes(src checkpoint.Source, n int, exact bool) (bytes int64) {
	eachTensor(src, func(_ *architecture.Tensor, t backend.Tensor) {
		whole := int64(quant.ConvertedBytes(t, exact))
		if t.Split != backend.SplitNone {
			shares := int64(n / t.Copies(n))
			whole = (whole + shares - 1) / shares
		}
		bytes += whole
	})
	return bytes
}

// HostExperts is where weights lie, in bytes, when the experts of some layers stay in the
// host's memory.
type HostExperts struct {
	Layers       int `json:"layers"`        // the first ones, so many
	ExpertLayers int `json:"expert_layers"` // of those, which have experts
	// HostBytes are the experts that stay, as stored; DeviceBytes the rest, types without
	// kernels on a GPU converted. HostReadBytes and DeviceReadBytes are what a forward of
	// one row reads of them.
	HostBytes       int64 `json:"host_bytes"`
	DeviceBytes     int64 `json:"device_bytes"`
	HostReadBytes   int64 `json:"host_read_bytes"`
	DeviceReadBytes int64 `json:"device_read_bytes"`
}

// HostExpertsOf is where a model's weights lie when the experts of the first layers stay in
// the host's memory: on one GPU, in the arithmetic that exact says.
func HostExpertsOf(src checkpoint.Source, layers int, exact bool) HostExperts {
	c := src.Config()
	y := HostExperts{Layers: layers, DeviceBytes: DeviceBytes(src, 1, exact), DeviceReadBytes: checkpoint.ReadBytes(src)}
	for i := range min(layers, c.Layers) {
		if c.Sparse(i) {
			y.ExpertLayers++
		}
	}
	eachTensor(src, func(p *architecture.Tensor, t backend.Tensor) {
		if p == nil || p.Class != architecture.ClassExpert || p.Layer >= min(layers, c.Layers) {
			return
		}
		read := p.ReadBytes(c, int64(t.Bytes()))
		y.HostBytes, y.HostReadBytes = y.HostBytes+int64(t.Bytes()), y.HostReadBytes+read
		y.DeviceBytes, y.DeviceReadBytes = y.DeviceBytes-int64(quant.ConvertedBytes(t, exact)), y.DeviceReadBytes-read
	})
	return y
}

// ExpertBytes is what the experts of each layer take on a GPU, types without kernels there
// converted; that of a layer without any is 0.
func ExpertBytes(src checkpoint.Source, exact bool) []int64 {
	list := make([]int64, src.Config().Layers)
	eachTensor(src, func(p *architecture.Tensor, t backend.Tensor) {
		if p != nil && p.Class == architecture.ClassExpert && p.Layer < len(list) {
			list[p.Layer] += int64(quant.ConvertedBytes(t, exact))
		}
	})
	return list
}

// eachTensor calls f with every tensor of a source, and how several devices share it, and
// what its architecture says of it: nil, where it does not know it.
func eachTensor(src checkpoint.Source, f func(p *architecture.Tensor, t backend.Tensor)) {
	c := src.Config()
	table := architecture.Of(c)
	for _, name := range src.Names() {
		t, ok := src.Tensor(name)
		if !ok {
			continue
		}
		if p, known := table.Find(c, name); known {
			f(&p, p.Cut(c, t))
		} else {
			t.Split, t.Sections, t.Heads = backend.SplitNone, nil, 0
			f(nil, t)
		}
	}
}

// Share is what each of several GPUs has of a model, in bytes.
type Share struct {
	GPUs        int   `json:"gpus"`
	WeightBytes int64 `json:"weight_bytes"` // of weights as stored
	ReadBytes   int64 `json:"read_bytes"`   // of those, what a forward of one row reads
	// StateBytes is what a sequence takes in recurrent layers, however long it is
	// (Config.SequenceBytes); KVBytesPerToken its keys and values in bf16.
	StateBytes      int64 `json:"state_bytes,omitempty"`
	KVBytesPerToken int64 `json:"kv_bytes_per_token"`
}

// ShareOf is what each of n GPUs has, which can share the model (CheckDevices).
func ShareOf(src checkpoint.Source, n int) Share {
	c := src.Config()
	y := Share{GPUs: n, StateBytes: c.SequenceBytes(architecture.StepRows(c.MaskTokenID)) / int64(n), KVBytesPerToken: c.KVBytesPerToken(backend.KVBF16) / int64(n/backend.HeadCopies(c.KVHeads, n))}
	eachTensor(src, func(p *architecture.Tensor, t backend.Tensor) {
		parts := int64(1)
		if t.Split != backend.SplitNone {
			parts = int64(n / t.Copies(n))
		}
		y.WeightBytes += int64(t.Bytes()) / parts
		if p != nil {
			// An embedding that is the head as well is whole, and each reads its part.
			if p.Role == architecture.Embedding {
				parts = int64(n)
			}
			y.ReadBytes += p.ReadBytes(c, int64(t.Bytes())) / parts
		}
	})
	return y
}
