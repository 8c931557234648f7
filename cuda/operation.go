package cuda

import (
	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

type opKind uint8

const (
	opEmbed    opKind = iota
	opFromHost        // rows that are made on the host, or given
	opJoin
	opRMSNorm
	opProject
	opProjectAdd
	opGated
	opRotate
	opAttend
	opHidden // what results bring of hidden states
	opHead
	opRoute
	opExperts
	opDelta
	opLeave   // rows go to the host's experts,
	opShared  // the expert that all have runs here,
	opReturn  // and what the host made is added
	opConvert // made by the plan
)

// op is one operation of a forward, its weights looked up.
type op struct {
	kind       opKind
	layer      int
	eps, scale float32
	dst, src   []backend.Buffer
	w          [3]launch.Linear
	n          int // how many of w are in use
	norm       [2]driver.Ptr
	kvHeads    int
	dim        int                  // of heads
	angles     *angles              // of opRotate, and of an opAttend that rotates
	first      int                  // of opFromHost: its first float of a row that comes from the host
	router     *launch.Router       // of opRoute
	mixture    *launch.Experts      // of opExperts
	routing    backend.Buffer       // likewise, and of opReturn
	shared     *launch.SharedExpert // of opShared
	gated      bool                 // of opRotate and opAttend: q has gates
	delta      *deltaOp
}

// operand is a buffer as a launch sees it: addresses of the forms in use.
type operand struct {
	width     int
	f32, bf16 driver.Ptr
}

// action is one operation with its addresses.
type action struct {
	op
	to      [3]operand
	from    [6]operand
	scratch [3]driver.Ptr
	left    bool // of opRoute and opExperts: the experts' launches may choose
}

// operation is what a kind of operation means to the plan and to a launch.
type operation struct {
	// reads are the forms of its inputs that it reads; nil: f32.
	reads func(y *plan, o *op) form
	// writes are the forms of its targets that its kernel makes, where some are
	// wanted; nil: f32.
	writes func(y *plan, o *op, wanted form) form
	// scratch is how many bytes of memory it needs that no other operation sees.
	scratch func(y *plan, o *op) [3]int
	// prepare makes room for what its launches use besides the arena, and returns
	// whether addresses moved. It may allocate, which a capture may not.
	prepare func(f *forward, y *plan, a *action) (moved bool, err error)
	// emit enqueues its kernels.
	emit func(b *Backend, y *plan, a *action)
}

// operations are what each kind means.
var operations = [...]operation{
	opEmbed:      {emit: (*Backend).emitEmbed},
	opFromHost:   {emit: (*Backend).emitFromHost},
	opJoin:       {writes: asWanted, emit: (*Backend).emitJoin},
	opRMSNorm:    {writes: asWanted, emit: (*Backend).emitRMSNorm},
	opProject:    {reads: readsOfWeights, prepare: prepareProject, emit: (*Backend).emitProject},
	opProjectAdd: {reads: readsOfWeights, prepare: prepareProjectAdd, emit: (*Backend).emitProjectAdd},
	opGated:      {reads: readsOfWeights, writes: writesOfGated, scratch: scratchOfGated, prepare: prepareProject, emit: (*Backend).emitGated},
	opRotate:     {writes: asWanted, emit: (*Backend).emitRotate},
	opAttend:     {reads: readsOfAttend, writes: writesOfAttend, prepare: prepareAttend, emit: (*Backend).emitAttend},
	opHidden:     {prepare: prepareHidden, emit: (*Backend).emitHidden},
	opHead:       {scratch: scratchOfHead, prepare: prepareHead, emit: (*Backend).emitHead},
	opRoute:      {prepare: prepareRoute, emit: (*Backend).emitRoute},
	opExperts:    {reads: readsOfExperts, prepare: prepareExperts, emit: (*Backend).emitExperts},
	opDelta:      {writes: asWanted, prepare: prepareDelta, emit: (*Backend).emitDelta},
	opLeave:      {prepare: prepareLeave, emit: (*Backend).emitLeave},
	opShared:     {reads: readsOfShared, prepare: prepareShared, emit: (*Backend).emitShared},
	opReturn:     {emit: (*Backend).emitReturn},
	opConvert:    {emit: (*Backend).emitConvert},
}

func asWanted(_ *plan, _ *op, wanted form) form { return wanted }

// emit enqueues actions: the step block, and one or a few kernels an action. A head
// writes the row results to the host, and before it hidden states may go there.
func (b *Backend) emit(y *plan, actions []action) {
	if y.kept {
		b.device.Apart()
	} else {
		b.device.CopyIn(b.step.Device, b.step.Host, y.shape.Bytes()+y.host)
	}
	for i := range actions {
		operations[actions[i].kind].emit(b, y, &actions[i])
	}
}

// warm loads the kernels of actions, those that nobody has foreseen beside each other: nothing
// may be loaded while a capture is under way, nor in a group while GPUs wait for each other.
func (b *Backend) warm(y *plan, actions []action) error {
	launches := func() { b.emit(y, actions) }
	w, err := b.device.Gather(launches)
	if err != nil || len(w) == 0 { // a pass of a hybrid's prompt asks each time
		return err
	}
	b.device.Preload(w, 0)
	return b.device.Rehearse(launches)
}

func (b *Backend) emitEmbed(y *plan, a *action) {
	w := a.w[0].Weight
	b.device.Embed(a.to[0].f32, w.Raw, w.DType, a.to[0].width, b.step.Device, y.shape.Bucket)
}

// emitFromHost takes the rows from behind the step block.
func (b *Backend) emitFromHost(y *plan, a *action) {
	rows := y.host / (4 * y.f.hostWidth)
	from := b.step.Device + driver.Ptr(y.shape.Bytes()+4*rows*a.first)
	b.device.Copy(a.to[0].f32, from, 4*rows*a.to[0].width)
}

// emitJoin puts rows behind each other.
func (b *Backend) emitJoin(y *plan, a *action) {
	at := 0
	for _, part := range a.from[:len(a.src)] {
		b.device.PutColumns(a.to[0].f32, a.to[0].bf16, part.f32, part.width, at, a.to[0].width, y.shape.Bucket)
		at += part.width
	}
}

func (b *Backend) emitRMSNorm(y *plan, a *action) {
	b.device.RMSNorm(a.to[0].f32, a.to[0].bf16, a.from[0].f32, a.norm[0], a.from[0].width, y.shape.Bucket, a.eps)
}

func (b *Backend) emitConvert(y *plan, a *action) {
	to, from, n := a.to[0], a.from[0], y.shape.Bucket*a.from[0].width
	if to.bf16 != 0 {
		b.device.ToBF16(to.bf16, from.f32, n)
	} else {
		b.device.ToF32(to.f32, from.bf16, n)
	}
}
