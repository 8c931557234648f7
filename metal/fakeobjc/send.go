package fakeobjc

import (
	"slices"
	"strings"

	"windrow/metal/driver"
)

// method is what a message does.
type method func(f *Fake, o *object, a []uintptr) uintptr

// common are the messages of every object.
var common = map[string]method{}

// methods are the messages of each class, as Apple's headers spell them. They
// are filled in by the files of the classes.
var methods = map[string]map[string]method{}

func init() {
	common["retain"] = func(_ *Fake, o *object, _ []uintptr) uintptr { o.count++; return o.id }
	common["release"] = func(f *Fake, o *object, _ []uintptr) uintptr { f.release(o); return 0 }
	common["respondsToSelector:"] = func(f *Fake, o *object, a []uintptr) uintptr {
		return boolean(f.method(o, f.selector(a[0])) != nil)
	}
}

// boolean is a BOOL in a register, whose upper bits are not defined.
func boolean(b bool) uintptr {
	if b {
		return 0x7f01
	}
	return 0x7f00
}

func (f *Fake) selector(sel uintptr) string {
	if sel == 0 || int(sel) > len(f.names) {
		f.bad("selector %#x was not registered", sel)
		return ""
	}
	return f.names[sel-1]
}

func (f *Fake) method(o *object, name string) method {
	if slices.Contains(f.options.Missing, name) {
		return nil
	}
	if m := methods[o.class][name]; m != nil {
		return m
	}
	return common[name]
}

// begin checks what every message must keep to, and returns its receiver, or
// nil. end ends the message.
func (f *Fake) begin(id, sel uintptr, arguments int) (*object, string) {
	busy := !f.sending.CompareAndSwap(false, true)
	f.mu.Lock()
	name := f.selector(sel)
	if busy {
		f.bad("%s sent while another message is under way", name)
	}
	if f.options.OneThread {
		t := threadID()
		if f.thread == 0 {
			f.thread = t
		}
		if t != f.thread {
			f.bad("%s sent from another thread than the first message", name)
		}
	}
	f.counts[name]++
	o := f.objects[id]
	switch {
	case name == "": // told already
	case id == 0:
		f.bad("%s sent to nil", name)
	case o == nil && f.freed[id] != "":
		f.bad("%s sent to a freed %s", name, f.freed[id])
	case o == nil:
		f.bad("%s sent to %#x, which is no object", name, id)
	case f.method(o, name) == nil:
		f.bad("-[%s %s]: unrecognized selector", o.class, name)
	case strings.Count(name, ":") != arguments:
		f.bad("-[%s %s]: %d arguments given", o.class, name, arguments)
	default:
		return o, name
	}
	return nil, name
}

func (f *Fake) end() {
	f.mu.Unlock()
	f.sending.Store(false)
}

// Send is objc_msgSend.
func (f *Fake) Send(id, sel uintptr, args ...uintptr) uintptr {
	o, name := f.begin(id, sel, len(args))
	defer f.end()
	if o == nil {
		return 0
	}
	if slices.Contains(unlike, name) {
		f.bad("-[%s %s] takes or returns no word", o.class, name)
		return 0
	}
	return f.method(o, name)(f, o, args)
}

// unlike are the messages whose arguments or results do not go in the registers
// that Send uses.
var unlike = []string{"dispatchThreadgroups:threadsPerThreadgroup:", "GPUStartTime", "GPUEndTime"}

// elsewhere stands for a method that is not Send's.
func elsewhere(*Fake, *object, []uintptr) uintptr { return 0 }

// Knows reports whether some class has a message of that name.
func Knows(selector string) bool {
	if common[selector] != nil {
		return true
	}
	for _, m := range methods {
		if m[selector] != nil {
			return true
		}
	}
	return false
}

// SendSizes sends a message of two MTLSize.
func (f *Fake) SendSizes(id, sel uintptr, a, b *driver.Size) {
	o, name := f.begin(id, sel, 2)
	defer f.end()
	if o == nil {
		return
	}
	if name != unlike[0] {
		f.bad("-[%s %s] takes no sizes", o.class, name)
		return
	}
	f.dispatch(o, *a, *b)
}

// SendFloat sends a message that returns a double.
func (f *Fake) SendFloat(id, sel uintptr) float64 {
	o, name := f.begin(id, sel, 0)
	defer f.end()
	if o == nil {
		return 0
	}
	c, ok := o.data.(*command)
	if !ok || !slices.Contains(unlike[1:], name) {
		f.bad("-[%s %s] returns no double", o.class, name)
		return 0
	}
	if !c.done {
		f.bad("%s before the work is done", name)
	}
	if name == "GPUStartTime" {
		return c.start
	}
	return c.end
}
