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

// Outputs is the tensor of outputs (rows) first to first+n-1, without a copy.
func (t Tensor) Outputs(first, n int) Tensor {
	part := func(b []byte) []byte {
		row := len(b) / t.Shape[0]
		return b[first*row : (first+n)*row : (first+n)*row]
	}
	y := t
	y.Shape = append([]int{n}, t.Shape[1:]...)
	y.Data = part(t.Data)
	if t.Group != 0 {
		y.Scales, y.Biases = part(t.Scales), part(t.Biases)
	}
	return y
}

// CheckInputs reports whether a matrix can be cut into n parts of equal inputs:
// whole groups or blocks each.
func (t Tensor) CheckInputs(n int) error {
	unit, what := max(t.DType.BlockSize(), t.Group), "blocks"
	if t.Group != 0 {
		what = "groups"
	}
	if in := t.Shape[1]; in%(n*unit) != 0 {
		if unit == 1 {
			return fmt.Errorf("tensor %s: %d inputs do not divide by %d", t.Name, in, n)
		}
		return fmt.Errorf("tensor %s: %d inputs in %s of %d do not divide by %d", t.Name, in, what, unit, n)
	}
	return nil
}

// Inputs is part i of n of every row of a matrix, copied: CheckInputs holds.
// It takes its memory from room, where that has enough.
func (t Tensor) Inputs(i, n int, room []byte) Tensor {
	out := t.Shape[0]
	part := func(b []byte) []byte {
		row := len(b) / out
		width := row / n
		var y []byte
		if size := out * width; size <= len(room) {
			y, room = room[:size:size], room[size:]
		} else {
			y = make([]byte, size)
		}
		for r := range out {
			copy(y[r*width:(r+1)*width], b[r*row+i*width:])
		}
		return y
	}
	y := t
	y.Shape = []int{out, t.Shape[1] / n}
	y.Data = part(t.Data)
	if t.Group != 0 {
		y.Scales, y.Biases = part(t.Scales), part(t.Biases)
	}
	return y
}
