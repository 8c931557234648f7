package metal

import "sync/atomic"

// useMatvec has single rows of decode forwards multiplied by kernels that sum in
// another order than those of windows: plain decoding is faster, and a row's
// bits depend on whether it comes alone. It is set before the first forward.
var useMatvec atomic.Bool

// matvecOutputs is the outputs of a simdgroup, half of them of the gate where
// there is one; a threadgroup is matvecGroup simdgroups.
const (
	matvecOutputs = 4
	matvecGroup   = 4
)

// matvec multiplies one row.
func (p projection) matvec(e encoder) {
	params, blocks := p.params(matvecOutputs)
	d := p.dispatch("matvec", &params)
	d.groups, d.threads = size3{(blocks + matvecGroup - 1) / matvecGroup, 1, 1}, size3{32 * matvecGroup, 1, 1}
	e.dispatch(d)
}
