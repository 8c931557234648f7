package backend

import "fmt"

// Split says how a weight may be cut where several devices share a model.
// A backend of one device does not look at it.
type Split uint8

// The ways to cut a weight [out, in]. What a cut weight makes is cut as well:
// the outputs of one that is SplitOutputs are what one that is SplitInputs, in
// ProjectAdd, takes.
const (
	SplitNone    Split = iota // whole on every device
	SplitOutputs              // each device has some of the outputs, in order
	SplitInputs               // each device has some of every output's inputs, and makes a part of the sum
)

// HeadCopies is how many of n devices, one behind the other, have the same of so many
// heads: 1 where there is a head for each device, or where n is no multiple of them.
func HeadCopies(heads, n int) int {
	if heads > 0 && n > heads && n%heads == 0 {
		return n / heads
	}
	return 1
}

// Copies is how many of n devices, one behind the other, have the same share of the
// tensor's outputs.
func (t Tensor) Copies(n int) int {
	if t.Split != SplitOutputs {
		return 1
	}
	return HeadCopies(t.Heads, n)
}

// Outputs is the tensor of outputs (rows) first to first+n-1, without a copy.
func (t Tensor) Outputs(first, n int) Tensor {
	part := func(b []byte) []byte {
		row := len(b) / t.Shape[0]
		return b[first*row : (first+n)*row : (first+n)*row]
	}
	y := t
	y.Sections, y.Heads = nil, 0
	y.Shape = append([]int{n}, t.Shape[1:]...)
	y.Data = part(t.Data)
	if t.Group != 0 {
		y.Scales, y.Biases = part(t.Scales), part(t.Biases)
	}
	return y
}

// sections are the runs of so many outputs or inputs that Split cuts, each by itself.
func (t Tensor) sections(length int) ([]int, error) {
	if t.Sections == nil {
		return []int{length}, nil
	}
	sum := 0
	for _, n := range t.Sections {
		sum += max(n, 0)
	}
	if sum != length {
		return nil, fmt.Errorf("tensor %s: runs of %v to cut, %d in all", t.Name, t.Sections, length)
	}
	return t.Sections, nil
}

// CheckOutputs reports whether a matrix, or a vector, can be cut into n equal shares of
// its outputs, of each of its Sections, as many of which are the same as Copies says.
func (t Tensor) CheckOutputs(n int) error {
	n /= t.Copies(n)
	list, err := t.sections(t.Shape[0])
	for _, run := range list {
		if run%n != 0 {
			return fmt.Errorf("tensor %s: %d outputs do not divide by %d", t.Name, run, n)
		}
	}
	return err
}

// CheckInputs reports whether a matrix, or a stack of them, can be cut into n shares of
// equal inputs, of each of its Sections: whole groups or blocks each.
func (t Tensor) CheckInputs(n int) error {
	unit, what := max(t.DType.BlockSize(), t.Group), "blocks"
	if t.Group != 0 {
		what = "groups"
	}
	list, err := t.sections(t.Shape[len(t.Shape)-1])
	for _, in := range list {
		if in%(n*unit) == 0 {
			continue
		}
		if unit == 1 {
			return fmt.Errorf("tensor %s: %d inputs do not divide by %d", t.Name, in, n)
		}
		return fmt.Errorf("tensor %s: %d inputs in %s of %d do not divide by %d", t.Name, in, what, unit, n)
	}
	return err
}

// OutputShare is share i of n of the outputs: CheckOutputs holds. Where there are
// Sections it is a copy, which takes its memory from room, if that has enough.
func (t Tensor) OutputShare(i, n int, room []byte) Tensor {
	copies := t.Copies(n)
	i, n = i/copies, n/copies
	out := t.Shape[0]
	if t.Sections == nil {
		return t.Outputs(i*out/n, out/n)
	}
	return t.share([]int{out / n}, n, room, func(dst, b []byte) {
		row := len(b) / out
		for _, run := range t.Sections {
			share := run / n * row
			copy(dst, b[i*share:(i+1)*share])
			dst, b = dst[share:], b[run*row:]
		}
	})
}

// InputShare is share i of n of every row of a matrix, copied: CheckInputs holds. It
// takes its memory from room, where that has enough.
func (t Tensor) InputShare(i, n int, room []byte) Tensor {
	out, in := t.Shape[0], t.Shape[1]
	list, _ := t.sections(in) // checked
	return t.share([]int{out, in / n}, n, room, func(dst, b []byte) {
		row := len(b) / out
		for r := range out {
			from := b[r*row : (r+1)*row]
			for _, run := range list {
				bytes := row * run / in
				share := bytes / n
				copy(dst, from[i*share:(i+1)*share])
				dst, from = dst[share:], from[bytes:]
			}
		}
	})
}

// share is a tensor of that shape whose bytes fill brings, an n-th of t's.
func (t Tensor) share(shape []int, n int, room []byte, fill func(dst, src []byte)) Tensor {
	part := func(b []byte) (y []byte) {
		if size := len(b) / n; size <= len(room) {
			y, room = room[:size:size], room[size:]
		} else {
			y = make([]byte, size)
		}
		fill(y, b)
		return y
	}
	y := t
	y.Sections, y.Heads = nil, 0
	y.Shape = append(shape, t.Shape[len(shape):]...)
	y.Data = part(t.Data)
	if t.Group != 0 {
		y.Scales, y.Biases = part(t.Scales), part(t.Biases)
	}
	return y
}
