package driver

import (
	"runtime"
	"sync"
	"unsafe"
)

// uploadSizes are how an Uploader works.
type uploadSizes struct {
	workers int
	piece   int // bytes of one job of a worker
	stage   int // bytes of a pinned buffer; a worker has two
}

// defaultSizes: of an H100's host, 16 processors, 4 GiB of a file in the page
// cache: 8 workers bring 36 to 38 GB/s with stages of 2 MiB, which stay in a core's
// L2 until the bus has read them, 15 to 25 with 256 KiB to 1/2 MiB, 15 to 20 with
// 8 MiB; 12 workers 35, 16 workers 33.
func defaultSizes() uploadSizes {
	return uploadSizes{workers: min(max(runtime.GOMAXPROCS(0)/2, 2), 8), piece: 4 << 20, stage: 2 << 20}
}

// uploadAhead is how many pieces for each worker an Upload may leave behind when it returns:
// whoever uploads has memory to allocate and weights to look at between two of them.
const uploadAhead = 4

// uploadRegistered: shorter pieces are not worth registering.
const uploadRegistered = 1 << 20

// hostRegisterReadOnly is CU_MEMHOSTREGISTER_READ_ONLY: the device only reads
// the range, so it may be mapped without the right to write.
const hostRegisterReadOnly = 0x08

// Uploader copies large slices, memory-mapped files above all, to the device
// at the bus's speed. Several workers bring the source's pages in and copy them
// through pinned buffers of their own. An Uploader belongs to one goroutine, which
// holds the context.
type Uploader struct {
	// Progress, when set before the first Upload, is told the bytes that have
	// arrived so far. It is called from workers, one at a time.
	Progress func(done int64)
	// InPlace, when set before the first Upload, registers the source's own pages
	// and copies from them, where the driver lets it: 13 to 20 GB/s where pinned
	// buffers give 36, since registering goes page by page.
	InPlace bool

	ctx     *Context
	sizes   uploadSizes
	jobs    chan uploadJob
	workers sync.WaitGroup

	mu      sync.Mutex
	came    *sync.Cond // a batch's pending, or all, has come to 0
	pending int64      // bytes not yet arrived
	batch   *Batch     // of the uploads that are being made
	done    int64
	refused bool  // the driver has refused to register
	err     error // the first; nothing is copied after it
}

type uploadJob struct {
	dst   Ptr
	src   []byte
	batch *Batch
}

// Batch is some of the uploads of an Uploader.
type Batch struct {
	u       *Uploader
	pending int64 // of these, under the uploader's lock
}

// NewUploader makes an uploader; its workers start with the first Upload.
func (c *Context) NewUploader() (*Uploader, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	u := &Uploader{ctx: c, sizes: defaultSizes()}
	u.came = sync.NewCond(&u.mu)
	u.batch = &Batch{u: u}
	return u, nil
}

// Upload begins the copy of src, of any length and alignment, to the device.
// It may return before the copy is done: src must stay as it is until Flush.
// An error may come from an earlier Upload.
func (u *Uploader) Upload(dst Ptr, src []byte) error {
	if err := u.start(); err != nil {
		return err
	}
	u.mu.Lock()
	u.pending += int64(len(src))
	u.batch.pending += int64(len(src))
	u.mu.Unlock()
	for len(src) > 0 {
		n := firstPiece(src, u.sizes.piece)
		prefetch(src[:n])
		u.jobs <- uploadJob{dst, src[:n:n], u.batch}
		dst, src = dst+Ptr(n), src[n:]
	}
	return u.failure()
}

// firstPiece is the length of the first job of src: up to a multiple of the
// piece's size in memory, so that only the first and the last job of an Upload
// have parts of pages.
func firstPiece(src []byte, piece int) int {
	offset := int(uintptr(unsafe.Pointer(&src[0])) % uintptr(piece))
	return min(len(src), piece-offset)
}

// Flush waits until all copies are done.
func (u *Uploader) Flush() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.pending > 0 {
		u.came.Wait()
	}
	return u.err
}

// Batch ends a batch: it is all that was uploaded since the one before.
func (u *Uploader) Batch() *Batch {
	b := u.batch
	u.batch = &Batch{u: u}
	return b
}

// Wait waits until the copies of a batch are done, whatever others are on their way.
func (b *Batch) Wait() error {
	b.u.mu.Lock()
	defer b.u.mu.Unlock()
	for b.pending > 0 {
		b.u.came.Wait()
	}
	return b.u.err
}

// Registered reports whether the driver let the sources so far be registered.
func (u *Uploader) Registered() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.InPlace && !u.refused
}

// Close waits for the copies, ends the workers and frees their buffers, until
// another Upload.
func (u *Uploader) Close() error {
	if u.jobs == nil {
		return u.failure()
	}
	u.Flush() // its error is kept
	close(u.jobs)
	u.workers.Wait()
	u.jobs = nil
	return u.failure()
}

func (u *Uploader) failure() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

func (u *Uploader) start() error {
	if err := u.ctx.check(); err != nil {
		return err
	}
	if u.jobs != nil {
		return u.failure()
	}
	u.jobs = make(chan uploadJob, uploadAhead*u.sizes.workers)
	for range u.sizes.workers {
		u.workers.Go(u.work)
	}
	return nil
}

// arrived accounts for bytes of a batch that have arrived, or will not because of err.
func (u *Uploader) arrived(of *Batch, n int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil && u.err == nil {
		u.err = err
	}
	u.pending -= int64(n)
	of.pending -= int64(n)
	u.done += int64(n)
	if u.Progress != nil && u.err == nil {
		u.Progress(u.done)
	}
	if of.pending == 0 {
		u.came.Broadcast()
	}
}

func (u *Uploader) refuse() {
	u.mu.Lock()
	u.refused = true
	u.mu.Unlock()
}
