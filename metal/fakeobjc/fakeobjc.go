// Package fakeobjc gives tests an Objective-C runtime with the few classes of
// Metal that metal/driver uses, for machines that have neither. It is strict
// where the real one is, and where it is not but should be:
//
//   - messages: spelling by class, number of arguments, receivers that are nil
//     or freed, two at once, another thread than the first (with OneThread)
//   - ownership: retains and releases, objects autoreleased without a pool,
//     pools popped out of order, whatever is left at the end of a test
//   - command buffers: encoders left open, second commits, waits before a
//     commit, results that nobody waited for
//   - dispatches: no pipeline, too many threads, indices over 30, setBytes over
//     4 KiB, bindings that the kernel needs and nobody set since the dispatch
//     before, or that it does not have
//   - memory: whole pages for buffers without a copy, buffers freed before the
//     GPU is done, writes beside a buffer
//
// A command buffer's work is done as late as the API allows, when something
// waits for it or for a later one. New buffers hold NaN, as do freed ones.
package fakeobjc

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"windrow/metal/driver"
)

// Options describe the machine that is played.
type Options struct {
	// Compile makes libraries. Without it no source compiles.
	Compile Compiler
	// Family is the number of the newest MTLGPUFamilyApple; 0 means 7, an M1.
	Family int
	// MaxThreads is the largest threadgroup of any kernel; 0 means 1024.
	MaxThreads int
	// MaxBufferLength is the largest buffer; 0 means 16 GiB.
	MaxBufferLength int
	// Memory is how many bytes buffers may have in all; 0 means no bound.
	Memory int
	// Missing are messages that no object understands, such as "setMathMode:"
	// before macOS 15 and "architecture" before macOS 14.
	Missing []string
	// NoDefault: MTLCreateSystemDefaultDevice gives nil. NoDevice: there is
	// none at all.
	NoDefault, NoDevice bool
	// SimdWidth is how many threads a simdgroup has; 0 means 32.
	SimdWidth int
	// FailCommit is the number, from 1, of a commit whose work fails.
	FailCommit int
	// OneThread reports messages from another thread than that of the first.
	OneThread bool
}

// Fake is a runtime. It is a driver.API.
type Fake struct {
	options Options
	sending atomic.Bool // a message is under way

	mu       sync.Mutex // of what follows, between messages and questions
	thread   int        // of the first message
	names    []string   // of selectors
	numbers  map[string]uintptr
	classes  map[string]*object
	objects  map[uintptr]*object
	freed    map[uintptr]string // their classes
	next     uintptr
	pools    map[int][]*pool // of each thread
	pushed   uintptr         // pools so far
	problems []string
	counts   map[string]int
	memory   int        // bytes of buffers
	queue    []*command // committed and not done, in order
	commits  int
}

var _ driver.API = (*Fake)(nil)

// New makes a runtime.
func New(o Options) *Fake {
	if o.Family == 0 {
		o.Family = 7
	}
	if o.MaxThreads == 0 {
		o.MaxThreads = 1024
	}
	if o.MaxBufferLength == 0 {
		o.MaxBufferLength = 16 << 30
	}
	if o.SimdWidth == 0 {
		o.SimdWidth = 32
	}
	return &Fake{
		options: o, numbers: map[string]uintptr{}, classes: map[string]*object{}, objects: map[uintptr]*object{},
		freed: map[uintptr]string{}, next: 0x1000, pools: map[int][]*pool{}, counts: map[string]int{},
	}
}

// Start makes a runtime that fails the test at its end if there was a problem,
// or if an object, a pool or unfinished work is left.
func Start(t testing.TB, o Options) *Fake {
	f := New(o)
	t.Cleanup(func() {
		for _, p := range f.Problems() {
			t.Error(p)
		}
		if !t.Failed() {
			for _, l := range f.Left() {
				t.Error(l)
			}
		}
	})
	return f
}

// Problems are the mistakes so far.
func (f *Fake) Problems() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.problems...)
}

// Left tells what has not been released, popped or waited for.
func (f *Fake) Left() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []string
	live := map[string]int{}
	for _, o := range f.objects {
		if !o.static {
			live[o.class]++
		}
	}
	for class, n := range live {
		left = append(left, fmt.Sprintf("%d %s not released", n, class))
	}
	for _, pools := range f.pools {
		if len(pools) > 0 {
			left = append(left, fmt.Sprintf("%d autorelease pools not popped", len(pools)))
		}
	}
	if len(f.queue) > 0 {
		left = append(left, fmt.Sprintf("%d committed command buffers that nobody waited for", len(f.queue)))
	}
	return left
}

// Count is how many times a message was sent, such as "commit".
func (f *Fake) Count(selector string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[selector]
}

// Messages is how many messages were sent in all.
func (f *Fake) Messages() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.counts {
		n += c
	}
	return n
}

// Allocated is how many bytes the buffers have, those without a copy included.
func (f *Fake) Allocated() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memory
}

// bad notes a mistake.
func (f *Fake) bad(format string, a ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, a...))
}
