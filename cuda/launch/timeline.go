package launch

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sync"

	"windrow/backend"
	"windrow/cuda/driver"
)

// timeline is what kernels tell of when they run: their PTX is changed so that the first lane
// of each warp notes the device's clock where it begins, before and after it waits for the
// kernel before, and where it ends, in a list of its multiprocessor.
type timeline struct {
	mu    sync.Mutex
	names []string   // of kernels, by number
	heads driver.Ptr // of the lists: how many records each has; and behind them the lists
	count int        // of lists
}

const (
	timelineHead    = 32 // bytes
	timelineRecord  = 32
	timelineRecords = 1 << 17 // of a list: what a prompt of 2,048 of a mixture of 48 layers tells, 70,000, and as many more
	timelineList    = timelineRecord * timelineRecords
)

// list is where that of a multiprocessor lies.
func (t *timeline) list(i int) driver.Ptr {
	return t.heads + driver.Ptr(t.count*timelineHead+i*timelineList)
}

// WatchKernels has all kernels tell when they run (Timeline). It comes before the first is
// loaded.
func (d *Device) WatchKernels() error {
	t := &timeline{count: d.Info.SMs}
	var err error
	if t.heads, err = d.Context.Alloc(t.count * (timelineHead + timelineList)); err != nil {
		return err
	}
	d.timeline = t
	return nil
}

// forgetKernels gives back what WatchKernels took.
func (d *Device) forgetKernels() {
	if d.timeline != nil {
		d.Context.Free(d.timeline.heads)
		d.timeline = nil
	}
}

var (
	kernelEnds  = regexp.MustCompile(`(?m)^[ \t]*ret;`)
	kernelWaits = []byte("griddepcontrol.wait;")
)

// mark changes the PTX of one kernel. A record is {begun, ready, released, ended, kernel,
// blocks, threads, 0}; times are the low halves of the device's clock in ns, 0 where there is none.
func (t *timeline) mark(name string, ptx []byte) ([]byte, error) {
	entry := bytes.Index(ptx, []byte(".entry "))
	body := bytes.Index(ptx[max(entry, 0):], []byte("\n{"))
	if entry < 0 || body < 0 {
		return nil, fmt.Errorf("cuda: kernel %s has no body", name)
	}
	body += entry + 2
	t.mu.Lock()
	number := len(t.names)
	t.names = append(t.names, name)
	t.mu.Unlock()

	var to bytes.Buffer
	to.Write(ptx[:body])
	to.WriteString(`
	.reg .b32 %told<14>;
	.reg .b64 %where<3>;
	.reg .pred %quiet<2>;
	mov.u32 %told0, %globaltimer_lo;
	mov.u32 %told1, 0;
	mov.u32 %told2, 0;
`)
	text := bytes.ReplaceAll(ptx[body:], kernelWaits, []byte("mov.u32 %told1, %globaltimer_lo;\n\tgriddepcontrol.wait;\n\tmov.u32 %told2, %globaltimer_lo;"))
	ends := 0
	text = kernelEnds.ReplaceAllFunc(text, func([]byte) []byte {
		ends++
		return fmt.Appendf(nil, `
	mov.u32 %%told3, %%globaltimer_lo;
	mov.u32 %%told4, %%tid.x;
	and.b32 %%told4, %%told4, 31;
	setp.ne.u32 %%quiet0, %%told4, 0;
	@%%quiet0 bra TOLD%[1]d;
	mov.u32 %%told5, %%smid;
	rem.u32 %%told5, %%told5, %[2]d;
	mov.u64 %%where0, %[3]d;
	mad.wide.u32 %%where1, %%told5, %[4]d, %%where0;
	atom.global.add.u32 %%told6, [%%where1], 1;
	setp.ge.u32 %%quiet1, %%told6, %[5]d;
	@%%quiet1 bra TOLD%[1]d;
	mad.wide.u32 %%where1, %%told5, %[6]d, %%where0;
	mad.wide.u32 %%where1, %%told6, %[7]d, %%where1;
	mov.u32 %%told7, %%nctaid.x;
	mov.u32 %%told8, %%nctaid.y;
	mul.lo.u32 %%told7, %%told7, %%told8;
	mov.u32 %%told8, %%nctaid.z;
	mul.lo.u32 %%told7, %%told7, %%told8;
	mov.u32 %%told9, %%ntid.x;
	mov.u32 %%told10, %[8]d;
	mov.u32 %%told11, 0;
	st.global.v4.u32 [%%where1+%[9]d], {%%told0, %%told1, %%told2, %%told3};
	st.global.v4.u32 [%%where1+%[10]d], {%%told10, %%told7, %%told9, %%told11};
TOLD%[1]d:
	ret;`, ends, t.count, uint64(t.heads), timelineHead, timelineRecords, timelineList, timelineRecord, number, t.count*timelineHead, t.count*timelineHead+16)
	})
	if ends == 0 {
		return nil, fmt.Errorf("cuda: kernel %s has no end", name)
	}
	to.Write(text)
	return to.Bytes(), nil
}

// Timeline runs something, and returns when its kernels ran (backend.Timed). WatchKernels
// was called.
func (d *Device) Timeline(run func() error) ([]backend.Launched, error) {
	t := d.timeline
	if t == nil {
		return nil, errors.New("cuda: kernels do not tell when they run")
	}
	heads := make([]byte, t.count*timelineHead)
	err := d.within(func() error {
		if err := d.Stream.Synchronize(); err != nil {
			return err
		}
		return d.Context.Upload(t.heads, heads)
	})
	if err == nil {
		err = run()
	}
	if err != nil {
		return nil, err
	}
	lists := make([][]byte, t.count)
	if err := d.within(func() error {
		if err := d.Stream.Synchronize(); err != nil {
			return err
		}
		if err := d.Context.Download(heads, t.heads); err != nil {
			return err
		}
		for i := range lists {
			n := binary.LittleEndian.Uint32(heads[i*timelineHead:])
			if n > timelineRecords {
				return fmt.Errorf("cuda: more warps ran than there is room to tell of: %d on a multiprocessor, room for %d", n, timelineRecords)
			}
			lists[i] = make([]byte, n*timelineRecord)
			if err := d.Context.Download(lists[i], t.list(i)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return t.launches(lists)
}

func (d *Device) within(f func() error) error {
	d.Context.Enter()
	defer d.Context.Leave()
	return f()
}

// told is what a warp notes, in ns.
type told struct{ begun, ready, released, ended int64 }

// launches reads the records of each multiprocessor. Of one kernel in one grid no launch ends before the one before
// it has: so many warps make a launch, in the order in which they ended.
func (t *timeline) launches(lists [][]byte) ([]backend.Launched, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	type kind struct{ kernel, blocks, threads uint32 }
	warps := map[kind][]told{}
	var zero uint32
	for _, list := range lists {
		for r := range slices.Chunk(list, timelineRecord) {
			word := func(i int) uint32 { return binary.LittleEndian.Uint32(r[4*i:]) }
			if len(warps) == 0 {
				zero = word(0)
			}
			at := func(i int) int64 { return int64(int32(word(i) - zero)) } // what ran within two seconds
			w := told{begun: at(0), ready: at(1), released: at(2), ended: at(3)}
			if word(1) == 0 { // it waits for nobody
				w.ready, w.released = w.begun, w.begun
			}
			k := kind{word(4), word(5), word(6)}
			warps[k] = append(warps[k], w)
		}
	}
	if len(warps) == 0 {
		return nil, errors.New("cuda: no kernel told when it ran")
	}
	var all []backend.Launched
	for k, list := range warps {
		each := int(k.blocks) * Ceil(int(k.threads), 32)
		if int(k.kernel) >= len(t.names) || each == 0 || len(list)%each != 0 {
			return nil, fmt.Errorf("cuda: %d warps told when they ran where launches of %d blocks of %d threads did", len(list), k.blocks, k.threads)
		}
		slices.SortFunc(list, func(a, b told) int { return cmp.Compare(a.ended, b.ended) })
		for launch := range slices.Chunk(list, each) {
			all = append(all, launched(t.names[k.kernel], int(k.blocks), int(k.threads), launch))
		}
	}
	slices.SortFunc(all, func(a, b backend.Launched) int { return cmp.Compare(a.Released, b.Released) })
	first := math.Inf(1)
	for _, l := range all {
		first = min(first, l.Begun)
	}
	for i := range all {
		l := &all[i]
		for _, at := range []*float64{&l.Begun, &l.Half, &l.Ready, &l.Released, &l.First, &l.Middle, &l.Last} {
			*at -= first
		}
	}
	return all, nil
}

// launched sums up a launch's warps, in the order in which they ended.
func launched(name string, blocks, threads int, warps []told) backend.Launched {
	const second = 1e9
	y := backend.Launched{Name: name, Blocks: blocks, Threads: threads}
	y.First, y.Middle, y.Last = float64(warps[0].ended)/second, float64(warps[len(warps)/2].ended)/second, float64(warps[len(warps)-1].ended)/second
	by := func(of func(told) int64) []told {
		list := slices.Clone(warps)
		slices.SortFunc(list, func(a, b told) int { return cmp.Compare(of(a), of(b)) })
		return list
	}
	begun := by(func(w told) int64 { return w.begun })
	y.Begun, y.Half = float64(begun[0].begun)/second, float64(begun[len(begun)/2].begun)/second
	y.Released = float64(by(func(w told) int64 { return w.released })[0].released) / second
	ready := by(func(w told) int64 { return w.ready })
	y.Ready = float64(ready[len(ready)-1].ready) / second
	return y
}
