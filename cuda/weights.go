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
	// weightStage is how much of quantised weights as stored is in one of two stages on the
	// device before it is packed, at most, but for a weight that is larger: enough for all
	// workers of an upload, and with the other one for a layer of a model of 8 billion weights.
	weightStage = 64 << 20
	// weightLeast is how much both begin with.
	weightLeast = 2 << 20
)

// weightRoom is memory of a device for weights, and those that are on their way.
type weightRoom struct {
	slab    driver.Ptr // the rest of the last one
	left    int
	given   int      // bytes of all weights so far
	stages  [2]stage // while one is filled, what is in the other arrives and is packed
	filling int
}

// stage holds weights as stored, until they are packed.
type stage struct {
	at         driver.Ptr
	size, used int
	pending    []pendingPack
	batch      *driver.Batch // the uploads among which theirs are; nil: it is being filled
}

// pendingPack is a weight that lies in a stage.
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
	s := &r.stages[r.filling]
	if s.used+need > s.size {
		s.batch = b.uploader.Batch()
		r.filling = 1 - r.filling
		s = &r.stages[r.filling]
		if err := b.packStage(s); err != nil {
			return nil, err
		}
		// The first weights tell how large a model is: a layer of a large one should have
		// room before anything is packed, as that kernel may have to be translated first.
		if most := min(max(8*r.given, weightLeast), weightStage); most > s.size || need > s.size {
			if err := b.growStage(s, max(most, need), need); err != nil {
				return nil, err
			}
		}
	}
	var at [3]driver.Ptr
	for i, p := range parts {
		if len(p) == 0 {
			continue
		}
		at[i] = s.at + driver.Ptr(s.used)
		s.used += (len(p) + weightAlign - 1) &^ (weightAlign - 1)
		if err := b.uploader.Upload(at[i], p); err != nil {
			return nil, err
		}
	}
	t.Data, t.Scales, t.Biases, t.Make = nil, nil, nil, nil
	s.pending = append(s.pending, pendingPack{t, to, at[0], at[1], at[2]})
	return to, nil
}

// growStage makes room of n bytes of an empty stage, or where memory lacks of least bytes,
// for which the other one may have to go.
func (b *Backend) growStage(s *stage, n, least int) error {
	b.freeStage(s)
	var err error
	if s.at, err = b.device.Context.Alloc(n); err != nil && least < n {
		n = least
		s.at, err = b.device.Context.Alloc(n)
	}
	if err != nil {
		if err := b.packPending(); err != nil {
			return err
		}
		b.freeStages()
		s.at, err = b.device.Context.Alloc(n)
	}
	if err == nil {
		s.size = n
	}
	return err
}

// packPending packs what lies in the stages.
func (b *Backend) packPending() error {
	r := &b.weights
	if err := b.packStage(&r.stages[1-r.filling]); err != nil {
		return err
	}
	return b.packStage(&r.stages[r.filling])
}

// packStage packs what lies in a stage, once it has arrived.
func (b *Backend) packStage(s *stage) error {
	if len(s.pending) == 0 {
		s.batch = nil
		return nil
	}
	if s.batch == nil {
		s.batch = b.uploader.Batch()
	}
	if err := s.batch.Wait(); err != nil {
		return err
	}
	for _, p := range s.pending {
		if b.device.PackTo(p.to, p.raw, p.scales, p.biases); b.device.Failed() {
			return fmt.Errorf("tensor %s: %w", p.tensor.Name, b.device.Take())
		}
	}
	s.pending, s.used, s.batch = s.pending[:0], 0, nil
	return b.device.Stream.Synchronize()
}

// arrive waits until all weights are there, and gives back what brings them. A later
// weight begins anew.
func (b *Backend) arrive() error {
	if err := b.packPending(); err != nil {
		return err
	}
	b.freeStages()
	return b.uploader.Close()
}

func (b *Backend) freeStages() {
	for i := range b.weights.stages {
		b.freeStage(&b.weights.stages[i])
	}
}

func (b *Backend) freeStage(s *stage) {
	b.device.Context.Free(s.at)
	*s = stage{}
}
