package driver

import (
	"errors"
	"os"
	"unsafe"
)

// uploadWorker has a stream and two lanes: while one lane's copy is on the
// bus, the other one's source is made ready.
type uploadWorker struct {
	u      *Uploader
	stream *Stream
	lanes  [2]lane
	next   int

	touched byte
}

// lane is one copy on its way, from a pinned buffer or from a registered range.
type lane struct {
	event      *Event
	buffer     *Pinned // made when first needed
	registered []byte  // the range, kept from the collector; nil when the copy is from the buffer
	bytes      int     // 0: nothing is on its way
	batch      *Batch  // to which they belong
}

// work is a worker's life.
func (u *Uploader) work() {
	u.ctx.Enter()
	defer u.ctx.Leave()
	w := &uploadWorker{u: u}
	err := w.open()
	for job, ok := w.take(); ok; job, ok = w.take() {
		if err == nil {
			err = u.failure()
		}
		if err != nil {
			u.arrived(job.batch, len(job.src), err)
			continue
		}
		err = w.do(job)
	}
	if err := w.close(); err != nil {
		u.arrived(new(Batch), 0, err)
	}
}

// take returns the next job. While there is none, what is on its way is
// waited for, so that a Flush comes to an end.
func (w *uploadWorker) take() (uploadJob, bool) {
	select {
	case job, ok := <-w.u.jobs:
		return job, ok
	default:
	}
	for range w.lanes {
		w.finish(w.lane())
	}
	job, ok := <-w.u.jobs
	return job, ok
}

// do queues the copies of one job and accounts for all of its bytes.
func (w *uploadWorker) do(job uploadJob) error {
	head, body := len(job.src), 0
	if w.u.Registered() && len(job.src) >= uploadRegistered {
		head, body = wholePages(job.src)
	}
	parts := []struct {
		from, to int
		queue    func(job uploadJob) (int, error)
	}{
		{0, head, w.stage}, {head, head + body, w.register}, {head + body, len(job.src), w.stage},
	}
	for _, p := range parts {
		if p.from == p.to {
			continue
		}
		queued, err := p.queue(uploadJob{job.dst + Ptr(p.from), job.src[p.from:p.to], job.batch})
		if err != nil {
			w.u.arrived(job.batch, len(job.src)-p.from-queued, err)
			return err
		}
	}
	return nil
}

// wholePages splits a slice into a head, whole pages and a tail: neighbouring
// slices may share a page, which can be registered only once at a time.
func wholePages(src []byte) (head, body int) {
	page := os.Getpagesize()
	head = -int(uintptr(unsafe.Pointer(&src[0]))) & (page - 1)
	body = (len(src) - head) &^ (page - 1)
	return head, body
}

// stage copies through pinned buffers. It returns the bytes that are queued,
// and accounted for by their lanes.
func (w *uploadWorker) stage(job uploadJob) (int, error) {
	size, src := w.u.sizes.stage, job.src
	Populate(src)
	for at := 0; at < len(src); at += size {
		n := min(len(src)-at, size)
		l := w.lane()
		err := w.finish(l)
		if err == nil && l.buffer == nil {
			l.buffer, err = w.u.ctx.HostAlloc(size)
		}
		if err == nil {
			copy(l.buffer.Bytes(), src[at:at+n])
			err = w.stream.CopyIn(job.dst+Ptr(at), l.buffer, 0, n)
		}
		if err == nil {
			err = w.queued(l, n, job.batch)
		}
		if err != nil {
			return at, err
		}
	}
	return len(src), nil
}

// register copies from the source's own pages, which it registers until the
// copy is done; where the driver refuses, it stages.
func (w *uploadWorker) register(job uploadJob) (int, error) {
	src := job.src
	w.touched += touch(src)
	l := w.lane()
	if err := w.finish(l); err != nil {
		return 0, err
	}
	c := w.u.ctx
	address := uintptr(unsafe.Pointer(&src[0]))
	var flags uintptr
	if c.info.ReadOnlyRegister {
		flags = hostRegisterReadOnly
	}
	if err := c.api.call(&c.api.hostRegister, address, uintptr(len(src)), flags); err != nil {
		w.u.refuse()
		return w.stage(job)
	}
	l.registered = src
	err := w.stream.queueCopy(&c.api.uploadAsync, uintptr(job.dst), address, len(src))
	if err == nil {
		err = w.queued(l, len(src), job.batch)
	}
	if err != nil {
		l.registered = nil
		return 0, errors.Join(err, w.unregister(src))
	}
	return len(src), nil
}

// touch brings a mapped file's pages in: reading faults 16 of them at a time,
// where the driver's registration would fault them one by one. The sum is what
// keeps the reads from being removed.
func touch(src []byte) (sum byte) {
	for i := 0; i < len(src); i += 4096 {
		sum += src[i]
	}
	return sum
}

// lane returns the lane that has been on its way the longest.
func (w *uploadWorker) lane() *lane {
	w.next = 1 - w.next
	return &w.lanes[w.next]
}

// queued marks the end of the lane's copy in the stream.
func (w *uploadWorker) queued(l *lane, n int, of *Batch) error {
	if err := l.event.Record(w.stream); err != nil {
		return errors.Join(err, w.stream.Synchronize())
	}
	l.bytes, l.batch = n, of
	return nil
}

// finish waits for the lane's copy and accounts for it.
func (w *uploadWorker) finish(l *lane) error {
	if l.bytes == 0 {
		return nil
	}
	err := l.event.Synchronize()
	if l.registered != nil {
		err = errors.Join(err, w.unregister(l.registered))
		l.registered = nil
	}
	w.u.arrived(l.batch, l.bytes, err)
	l.bytes, l.batch = 0, nil
	return err
}

func (w *uploadWorker) unregister(src []byte) error {
	c := w.u.ctx
	return c.wrap(c.api.call(&c.api.hostUnregister, uintptr(unsafe.Pointer(&src[0]))))
}

func (w *uploadWorker) open() error {
	var err error
	if w.stream, err = w.u.ctx.NewStream(); err != nil {
		return err
	}
	for i := range w.lanes {
		if w.lanes[i].event, err = w.u.ctx.NewEvent(); err != nil {
			return err
		}
	}
	return nil
}

func (w *uploadWorker) close() error {
	var errs []error
	for i := range w.lanes {
		l := &w.lanes[i]
		errs = append(errs, w.finish(l))
		if l.buffer != nil {
			errs = append(errs, l.buffer.Close())
		}
		if l.event != nil {
			errs = append(errs, l.event.Close())
		}
	}
	if w.stream != nil {
		errs = append(errs, w.stream.Close())
	}
	return errors.Join(errs...)
}
