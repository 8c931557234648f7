package fakeobjc

import "unsafe"

// object is an instance, or a class ("@NSString").
type object struct {
	id     uintptr
	class  string
	count  int  // of references
	static bool // never freed
	text   string
	memory []byte // a string's characters
	data   any    // what the class needs
}

// pool holds what is to be released once.
type pool struct {
	id      uintptr
	objects []*object
}

// make makes an object that the caller owns.
func (f *Fake) make(class string) *object {
	f.next += 16
	o := &object{id: f.next, class: class, count: 1}
	f.objects[o.id] = o
	return o
}

// lasting makes an object that is never freed.
func (f *Fake) lasting(class string) *object {
	o := f.make(class)
	o.static = true
	return o
}

// autoreleased makes an object that the innermost pool owns.
func (f *Fake) autoreleased(class string) *object {
	o := f.make(class)
	pools := f.pools[threadID()]
	if len(pools) == 0 {
		f.bad("%s autoreleased with no pool in place: it leaks", class)
		o.static = true // reported once
		return o
	}
	p := pools[len(pools)-1]
	p.objects = append(p.objects, o)
	return o
}

func (f *Fake) string(text string) uintptr {
	o := f.autoreleased("NSString")
	o.text = text
	return o.id
}

func (f *Fake) release(o *object) {
	if o.static {
		return
	}
	if o.count--; o.count > 0 {
		return
	}
	delete(f.objects, o.id)
	f.freed[o.id] = o.class
	for i := range o.memory {
		o.memory[i] = '?'
	}
	if d, ok := o.data.(interface{ dealloc(*Fake) }); ok {
		d.dealloc(f)
	}
}

// find returns the live object of a class that an argument names, or nil, which
// is a mistake.
func (f *Fake) find(id uintptr, class string) *object {
	o := f.objects[id]
	switch {
	case id == 0:
		f.bad("nil where %s is needed", class)
	case o == nil && f.freed[id] != "":
		f.bad("freed %s where %s is needed", f.freed[id], class)
	case o == nil:
		f.bad("%#x where %s is needed", id, class)
	case o.class != class:
		f.bad("%s where %s is needed", o.class, class)
	default:
		return o
	}
	return nil
}

// Sel is sel_registerName.
func (f *Fake) Sel(name string) uintptr {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.numbers[name] == 0 {
		f.names = append(f.names, name)
		f.numbers[name] = uintptr(len(f.names))
	}
	return f.numbers[name]
}

// Class is objc_getClass: nil for a class that is not there.
func (f *Fake) Class(name string) uintptr {
	f.mu.Lock()
	defer f.mu.Unlock()
	if methods["@"+name] == nil {
		return 0
	}
	if f.classes[name] == nil {
		f.classes[name] = f.lasting("@" + name)
	}
	return f.classes[name].id
}

// SystemDefaultDevice is MTLCreateSystemDefaultDevice.
func (f *Fake) SystemDefaultDevice() uintptr {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.options.NoDefault || f.options.NoDevice {
		return 0
	}
	return f.make("MTLDevice").id
}

// CopyAllDevices is MTLCopyAllDevices.
func (f *Fake) CopyAllDevices() uintptr {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.make("NSArray")
	a := &array{}
	if !f.options.NoDevice {
		a.items = append(a.items, f.make("MTLDevice"))
	}
	o.data = a
	return o.id
}

// array owns its items.
type array struct{ items []*object }

func (a *array) dealloc(f *Fake) {
	for _, o := range a.items {
		f.release(o)
	}
}

// PoolPush is objc_autoreleasePoolPush.
func (f *Fake) PoolPush() uintptr {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pushed++
	t := threadID()
	f.pools[t] = append(f.pools[t], &pool{id: f.pushed})
	return f.pushed
}

// PoolPop is objc_autoreleasePoolPop.
func (f *Fake) PoolPop(id uintptr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := threadID()
	pools := f.pools[t]
	if len(pools) == 0 || pools[len(pools)-1].id != id {
		f.bad("an autorelease pool is not the innermost of the thread that pops it")
		return
	}
	p := pools[len(pools)-1]
	f.pools[t] = pools[:len(pools)-1]
	for _, o := range p.objects {
		f.release(o)
	}
}

// pointer makes a pointer of an argument.
func pointer(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
