package launch

import (
	"fmt"
	"unsafe"

	"windrow/cuda/driver"
)

// Numbers of ncclDataType_t and ncclRedOp_t.
const (
	ncclF32 = 7
	ncclSum = 0
)

// Rank is one GPU's end of a communicator. Its exchanges are queued on the GPU's
// stream, and wait there for those of the other ranks.
type Rank struct {
	lib    *NCCL
	handle uintptr
	index  int
	count  int        // of ranks
	args   [7]uintptr // of an exchange
}

func (n *NCCL) readVersion() error {
	var version int32
	if err := ncclError("ncclGetVersion", driver.Call(n.versionAddress, uintptr(unsafe.Pointer(&version)))); err != nil {
		return err
	}
	n.version = int(version)
	return nil
}

// Connect makes a communicator of the devices, in this order.
func (n *NCCL) Connect(devices []int) ([]*Rank, error) {
	list, handles := make([]int32, len(devices)), make([]uintptr, len(devices))
	for i, d := range devices {
		list[i] = int32(d)
	}
	if err := ncclError("ncclCommInitAll", driver.Call(n.initialise,
		uintptr(unsafe.Pointer(&handles[0])), uintptr(len(devices)), uintptr(unsafe.Pointer(&list[0])))); err != nil {
		return nil, err
	}
	ranks := make([]*Rank, len(devices))
	for i, h := range handles {
		ranks[i] = &Rank{lib: n, handle: h, index: i, count: len(devices)}
	}
	return ranks, nil
}

// gather queues the exchange of n floats of each rank: rank i's lie at p + 4·n·i,
// everywhere afterwards. It may be captured.
func (r *Rank) gather(s *driver.Stream, p driver.Ptr, n int) error {
	r.args = [7]uintptr{uintptr(p) + uintptr(4*n*r.index), uintptr(p), uintptr(n), ncclF32, r.handle, s.Handle()}
	return ncclError("ncclAllGather", driver.CallBlock(r.lib.gather, r.args[:6]))
}

// reduce queues the sum of n floats of each rank, in an order of NCCL's, to the
// same place everywhere.
func (r *Rank) reduce(s *driver.Stream, p driver.Ptr, n int) error {
	r.args = [7]uintptr{uintptr(p), uintptr(p), uintptr(n), ncclF32, ncclSum, r.handle, s.Handle()}
	return ncclError("ncclAllReduce", driver.CallBlock(r.lib.reduce, r.args[:]))
}

// Close ends the rank; all ranks of a communicator close at the same time.
func (r *Rank) Close() error {
	return ncclError("ncclCommDestroy", driver.Call(r.lib.destroy, r.handle))
}

// Abort ends the rank and what is queued of it, so that nobody waits for it.
func (r *Rank) Abort() error {
	return ncclError("ncclCommAbort", driver.Call(r.lib.abort, r.handle))
}

// ncclError makes an error of an ncclResult_t.
func ncclError(call string, status int32) error {
	if status == 0 {
		return nil
	}
	name, ok := map[int32]string{
		1: "a call of CUDA failed", 2: "a call of the system failed", 3: "internal error", 4: "invalid argument",
		5: "invalid usage", 6: "another rank failed", 7: "in progress",
	}[status]
	if !ok {
		name = "unknown"
	}
	return fmt.Errorf("%s: status %d (%s; NCCL_DEBUG=WARN tells more)", call, status, name)
}
