package launch

import "windrow/cuda/driver"

// Stacked are two weights that become one, of the outputs of both.
type Stacked struct{ first, second *Weight }

// Above stacks weights that the tensor-core kernels take; false where they are not of one
// form, or the second's outputs would not begin where a strip of 16 does.
func Above(first, second *Weight) (Stacked, bool) {
	if !first.Fast() || !second.Fast() || first.In != second.In || first.format() != second.format() || first.Partial || second.Partial {
		return Stacked{}, false
	}
	return Stacked{first, second}, first.Packed == nil || first.Out%16 == 0
}

// sizes are the bytes of the two.
func (s Stacked) sizes() (first, second int) {
	if s.first.Packed != nil {
		return s.first.Packed.Bytes, s.second.Packed.Bytes
	}
	return s.first.Out * s.first.DType.RowBytes(s.first.In), s.second.Out * s.second.DType.RowBytes(s.second.In)
}

// Bytes is what both take.
func (s Stacked) Bytes() int {
	first, second := s.sizes()
	return first + second
}

// At is the weight whose data lies there.
func (s Stacked) At(data driver.Ptr) Weight {
	y := *s.first
	y.Out += s.second.Out
	if y.Packed == nil {
		y.Raw = data
		return y
	}
	p := *y.Packed
	p.out, p.Data, p.Bytes = y.Out, data, s.Bytes()
	y.Packed = &p
	return y
}

// Fill copies both, and waits for that: projections read weights before the kernel before
// them has ended.
func (s Stacked) Fill(d *Device, data driver.Ptr) error {
	first, second := s.sizes()
	d.Copy(data, s.first.operand(), first)
	d.Copy(data+driver.Ptr(first), s.second.operand(), second)
	if err := d.Take(); err != nil {
		return err
	}
	return d.Stream.Synchronize()
}
