package cuda

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

const (
	// weightSlab is how much is allocated at once for small weights, at most: a model
	// of experts has tens of thousands, and the driver rounds each up to 2 MiB.
	weightSlab  = 64 << 20
	weightAlign = 256
	// weightStage is how much of quantised weights as stored is on the device before
	// it is packed, at most: enough for all workers of an upload.
	weightStage = 128 << 20
	// weightLeast is how much both begin with.
	weightLeast = 2 << 20
)

// weightRoom is memory of a device for weights, and those that are on their way.
type weightRoom struct {
	slab    driver.Ptr // the rest of the last one
	left    int
	given   int        // bytes of all weights so far
	stage   driver.Ptr // weights as stored, until they are packed
	size    int
	used    int
	pending []pendingPack
}

// pendingPack is a weight that lies in the stage.
type pendingPack struct {
	tensor              backend.Tensor // without its bytes
	to                  launch.Packing
	raw, scales, biases driver.Ptr
}

// take gives memory for a weight, which the backend owns.
func (b *Backend) take(n int) (driver.Ptr, error) {
	r := &b.weights
	n = (n + weightAlign - 1) &^ (weightAlign - 1)
	r.given += n
	if n > r.left {
		size := n
		if s := min(max(r.given, weightLeast), weightSlab); n <= s/4 {
			size = s
		}
		p, err := b.device.Context.Alloc(size)
		if err != nil && size > n { // the last of the memory
			size = n
			p, err = b.device.Context.Alloc(n)
		}
		if err != nil {
			return 0, err
		}
		b.owned = append(b.owned, p)
		if size == n {
			return p, nil
		}
		r.slab, r.left = p, size
	}
	p := r.slab
	r.slab, r.left = r.slab+driver.Ptr(n), r.left-n
	return p, nil
}

// pack begins to bring a quantised weight to the device, where it is packed at the
// latest before a forward.
func (b *Backend) pack(t backend.Tensor) (launch.Packing, error) {
	to, _ := launch.PackedShape(t.DType, t.Group, t.Shape[0], t.Shape[1])
	b.previewPack(t.DType, to)
	var err error
	if to.Data, err = b.take(to.Bytes); err != nil {
		return nil, err
	}
	r := &b.weights
	parts := [][]byte{t.Data, t.Scales, t.Biases}
	need := 0
	for _, p := range parts {
		need += (len(p) + weightAlign - 1) &^ (weightAlign - 1)
	}
	if r.used+need > r.size {
		if err := b.packPending(); err != nil {
			return nil, err
		}
		if most := min(max(r.given, weightLeast), weightStage); most > r.size || need > r.size {
			if err := b.growStage(max(most, need), need); err != nil {
				return nil, err
			}
		}
	}
	var at [3]driver.Ptr
	for i, p := range parts {
		if len(p) == 0 {
			continue
		}
		at[i] = r.stage + driver.Ptr(r.used)
		r.used += (len(p) + weightAlign - 1) &^ (weightAlign - 1)
		if err := b.uploader.Upload(at[i], p); err != nil {
			return nil, err
		}
	}
	t.Data, t.Scales, t.Biases, t.Make = nil, nil, nil, nil
	r.pending = append(r.pending, pendingPack{t, to, at[0], at[1], at[2]})
	return to, nil
}

// growStage makes a stage of n bytes, or where memory lacks of least bytes.
func (b *Backend) growStage(n, least int) error {
	b.freeStage()
	r := &b.weights
	var err error
	if r.stage, err = b.device.Context.Alloc(n); err != nil && least < n {
		n = least
		r.stage, err = b.device.Context.Alloc(n)
	}
	if err == nil {
		r.size = n
	}
	return err
}

// packPending packs what lies in the stage.
func (b *Backend) packPending() error {
	r := &b.weights
	if len(r.pending) == 0 {
		return nil
	}
	if err := b.uploader.Flush(); err != nil {
		return err
	}
	for _, p := range r.pending {
		if b.device.PackTo(p.to, p.raw, p.scales, p.biases); b.device.Failed() {
			return fmt.Errorf("tensor %s: %w", p.tensor.Name, b.device.Take())
		}
	}
	r.pending, r.used = r.pending[:0], 0
	return b.device.Stream.Synchronize()
}

// arrive waits until all weights are there, and gives back what brings them. A later
// weight begins anew.
func (b *Backend) arrive() error {
	if err := b.packPending(); err != nil {
		return err
	}
	b.freeStage()
	return b.uploader.Close()
}

func (b *Backend) freeStage() {
	r := &b.weights
	b.device.Context.Free(r.stage)
	r.stage, r.size, r.used, r.pending = 0, 0, 0, nil
}
