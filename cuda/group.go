package cuda

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"windrow/backend"
	"windrow/backend/paging"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

// Group is several GPUs of one host as a backend.Backend: each has a part of the
// weights that have a backend.Split, and of the keys, values and states of their
// heads, and makes a part of every forward. They exchange sums through NCCL.
type Group struct {
	budget  backend.Budget
	shards  []*Backend // each on its GPU
	ranks   []*launch.Rank
	peers   []*launch.Peers // where the GPUs reach each other's memory
	nccl    *launch.NCCL
	notify  func(int64)
	work    []chan func() // of the threads of all shards but the first
	ended   sync.WaitGroup
	running *groupForward
	marks   *paging.Marks[[]driver.Ptr]

	abortOnce sync.Once
	aborted   sync.WaitGroup
	dead      error // why the communicator was ended
}

// NewGroup opens the GPUs 0 to devices-1, at least two, and connects them. Its error is
// one line that says what is missing; it wraps ErrNoNCCL where that is NCCL.
func NewGroup(o Options, devices int) (*Group, error) {
	if devices < 2 || devices > maxGroup {
		return nil, fmt.Errorf("cuda: a group of %d GPUs, want 2 to %d", devices, maxGroup)
	}
	if o.Experts != nil {
		return nil, errors.New("cuda: several GPUs leave no experts to the host: each has a part of every one")
	}
	drv, err := driver.Open(driver.Options{Library: o.Library, Code: o.Code})
	if err != nil {
		return nil, err
	}
	list, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	if len(list) < devices {
		return nil, fmt.Errorf("%w for each part of %d: the driver shows %d", ErrNoDevice, devices, len(list))
	}
	lib, err := launch.FindNCCL()
	if err != nil {
		return nil, err
	}
	g := &Group{nccl: lib, notify: o.Progress, marks: paging.NewMarks[[]driver.Ptr](paging.DefaultMarks)}
	if o.Marks != 0 {
		g.marks.Limit(o.Marks)
	}
	for i := range devices {
		part := o
		part.Device, part.Progress = i, nil
		b, err := New(part)
		if err != nil {
			return nil, errors.Join(onGPU(i, err), g.Close())
		}
		b.promptRows = 0 // ncclAllReduce has an order of its own for each number of rows
		g.shards = append(g.shards, b)
	}
	if err := g.open(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// ErrNoNCCL is what NewGroup's error wraps where the machine has no NCCL.
var ErrNoNCCL = launch.ErrNoNCCL

// maxGroup is more GPUs than a host has.
const maxGroup = 64

func onGPU(i int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("GPU %d: %w", i, err)
}

// open starts the threads and connects the GPUs.
func (g *Group) open() (err error) {
	for range len(g.shards) - 1 {
		work := make(chan func())
		g.work = append(g.work, work)
		g.ended.Go(func() {
			for f := range work {
				f()
			}
		})
	}
	devices := make([]int, len(g.shards))
	for i, b := range g.shards {
		devices[i] = b.device.Info.Ordinal
		if b.device.Info.Name != g.shards[0].device.Info.Name {
			return fmt.Errorf("cuda: GPU 0 is a %s, GPU %d a %s: want GPUs of one kind", g.shards[0].device.Info.Name, i, b.device.Info.Name)
		}
		// cuBLASLt loads kernels when it first needs them, which may wait for a GPU
		// that waits for this one: prefill takes the built-in kernels.
		b.device.WithoutBLAS()
	}
	if g.ranks, err = g.nccl.Connect(devices); err != nil {
		return fmt.Errorf("cuda: NCCL %s: %w", g.nccl.VersionText(), err)
	}
	for i, b := range g.shards {
		b.device.Join(g.ranks[i])
	}
	if err := g.reach(); err != nil {
		return err
	}
	// The first exchanges are made before anything is captured.
	_, err = g.tryExchange()
	return err
}

// reach lets the GPUs exchange small sums by kernels of their own, where each can write
// into each other's memory; else NCCL does all of it.
func (g *Group) reach() error {
	if len(g.shards) > launch.MostPeers || os.Getenv(launch.PeersVariable) == "off" {
		return nil
	}
	for _, b := range g.shards {
		for _, peer := range g.shards {
			if peer != b && !b.device.Context.Reaches(peer.device.Context) {
				return nil
			}
		}
	}
	// All mailboxes are there before anybody writes to one.
	for i, b := range g.shards {
		p, err := g.mailbox(b)
		if err != nil {
			return onGPU(i, err)
		}
		g.peers = append(g.peers, p)
	}
	return g.each(func(i int, b *Backend) error {
		b.device.Context.Enter()
		defer b.device.Context.Leave()
		return b.device.ConnectPeers(g.peers[i], g.peers)
	})
}

// mailbox lets a GPU write to all others' memory, and makes the room that they write to.
func (g *Group) mailbox(b *Backend) (*launch.Peers, error) {
	b.device.Context.Enter()
	defer b.device.Context.Leave()
	for _, peer := range g.shards {
		if peer == b {
			continue
		}
		if err := b.device.Context.Reach(peer.device.Context); err != nil {
			return nil, err
		}
	}
	return b.device.NewPeers(len(g.shards))
}

// tryExchange tries what all GPUs exchange, and says how long one takes.
func (g *Group) tryExchange() (took time.Duration, err error) {
	all := make([]time.Duration, len(g.shards))
	err = g.together(func(i int, b *Backend) (err error) {
		all[i], err = b.device.TryExchange()
		return err
	})
	return slices.Max(all), err
}

// each runs f for every GPU at once, each on a thread of its own, and returns the
// error of the first GPU that has one.
func (g *Group) each(f func(i int, b *Backend) error) error {
	errs := make([]error, len(g.shards))
	var running sync.WaitGroup
	for i := 1; i < len(g.shards); i++ {
		running.Add(1)
		g.work[i-1] <- func() {
			defer running.Done()
			errs[i] = onGPU(i, f(i, g.shards[i]))
		}
	}
	errs[0] = onGPU(0, f(0, g.shards[0]))
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// together is each of something that exchanges: the first error ends the
// communicator, so that no GPU waits for the one that failed. The group is of no
// use then. It returns that error.
func (g *Group) together(f func(i int, b *Backend) error) error {
	if g.dead != nil {
		return g.dead
	}
	err := g.each(func(i int, b *Backend) error {
		err := f(i, b)
		if err != nil {
			g.abort(onGPU(i, err))
		}
		return err
	})
	if g.dead != nil {
		return g.dead
	}
	return err
}

// abort ends what the GPUs are at; any of their threads may call it.
func (g *Group) abort(err error) {
	g.abortOnce.Do(func() {
		g.dead = err
		for _, p := range g.peers {
			p.Stop()
		}
		for i, r := range g.ranks {
			g.aborted.Go(func() {
				c := g.shards[i].device.Context
				c.Enter()
				defer c.Leave()
				r.Abort() // nothing is better than to go on
			})
		}
	})
}

// Name is "cuda".
func (g *Group) Name() string { return "cuda" }

// Features describes the GPUs.
func (g *Group) Features() backend.Features {
	f := g.shards[0].Features()
	f.Description = fmt.Sprintf("%d × %s, NCCL %s", len(g.shards), f.Description, g.nccl.VersionText())
	if g.peers != nil {
		f.Description += " and each other's memory"
	}
	f.Devices = len(g.shards)
	return f
}

// DeviceName is the GPUs' name.
func (g *Group) DeviceName() string { return g.shards[0].DeviceName() }

// Launches is how many nodes the last replayed graph of a GPU has.
func (g *Group) Launches() int { return g.shards[0].Launches() }

// FreeMemory is how many bytes the GPU with the least free memory has free, and
// has in all, and that GPU's number.
func (g *Group) FreeMemory() (free, total uint64, device int, err error) {
	for i, b := range g.shards {
		f, t, err := b.FreeMemory()
		if err != nil {
			return 0, 0, i, onGPU(i, err)
		}
		if i == 0 || f < free {
			free, total, device = f, t, i
		}
	}
	return free, total, device, nil
}

// CopyBandwidth is the sum of what the GPUs copy at the same time.
func (g *Group) CopyBandwidth(d time.Duration) (sum float64) {
	rates := make([]float64, len(g.shards))
	g.each(func(i int, b *Backend) error { // measuring has no error
		rates[i] = b.CopyBandwidth(d)
		return nil
	})
	for _, r := range rates {
		sum += r
	}
	return sum
}

// Close frees everything on all GPUs.
func (g *Group) Close() error {
	var errs []error
	if len(g.ranks) > 0 {
		// NCCL waits for the graphs that hold exchanges.
		for _, b := range g.shards {
			b.device.Context.Enter()
			b.device.Stream.Synchronize() // closing the stream tells
			b.graphs.drop(nil)
			b.device.Context.Leave()
		}
		g.aborted.Wait()
		if g.dead == nil {
			errs = append(errs, g.each(func(i int, b *Backend) error {
				b.device.Context.Enter()
				defer b.device.Context.Leave()
				return g.ranks[i].Close()
			}))
		}
		g.ranks = nil
	}
	for _, work := range g.work {
		close(work)
	}
	g.work = nil
	g.ended.Wait()
	for i, p := range g.peers {
		b := g.shards[i]
		b.device.Context.Enter()
		errs = append(errs, onGPU(i, b.device.ClosePeers(p)))
		b.device.Context.Leave()
	}
	g.peers = nil
	for i, b := range g.shards {
		errs = append(errs, onGPU(i, b.Close()))
	}
	g.shards = nil
	return errors.Join(errs...)
}

var _ backend.Backend = (*Group)(nil)
