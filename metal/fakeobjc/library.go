package fakeobjc

import "unsafe"

// Compiler makes a library of a source text. safeMath is what the compile
// options ask for.
type Compiler func(source string, safeMath bool) (Library, error)

// Library is a compiled source.
type Library interface {
	// Kernel finds a kernel by its host name, or returns nil.
	Kernel(name string) Kernel
	// Kernels lists the host names.
	Kernels() []string
}

// Kernel is a function that runs in threadgroups. Errors of Run name it.
type Kernel interface {
	Bindings() []Binding
	Run(l Launch) error
}

// Binding is a parameter of a kernel.
type Binding struct {
	Index       int
	Threadgroup bool // [[threadgroup(Index)]], else [[buffer(Index)]]
	Size        int  // of what must be there at least, in bytes
}

// Launch is one dispatch.
type Launch struct {
	Groups, Threads [3]int
	Args            []Arg
	Threadgroup     map[int]int // bytes, by index
}

// Arg is what a [[buffer(Index)]] is bound to: memory up to the end of its
// allocation, or bytes, which have none.
type Arg struct {
	Index      int
	Memory     []byte
	Allocation []byte
}

// limited is a kernel that is declared for fewer threads than others.
type limited interface{ MaxThreads() int }

// maxThreads is the largest threadgroup of a kernel.
func (f *Fake) maxThreads(k Kernel) int {
	n := f.options.MaxThreads
	if l, ok := k.(limited); ok {
		n = min(n, l.MaxThreads())
	}
	return n
}

// compileOptions are an MTLCompileOptions.
type compileOptions struct {
	initialised bool
	version     uintptr
	safe        bool
}

func init() {
	methods["@MTLCompileOptions"] = map[string]method{
		"alloc": func(f *Fake, _ *object, _ []uintptr) uintptr {
			o := f.make("MTLCompileOptions")
			o.data = &compileOptions{}
			return o.id
		},
	}
	set := func(change func(c *compileOptions, x uintptr)) method {
		return func(_ *Fake, o *object, a []uintptr) uintptr {
			change(o.data.(*compileOptions), a[0])
			return 0
		}
	}
	methods["MTLCompileOptions"] = map[string]method{
		"init": func(_ *Fake, o *object, _ []uintptr) uintptr {
			o.data.(*compileOptions).initialised = true
			return o.id
		},
		"setLanguageVersion:": set(func(c *compileOptions, x uintptr) { c.version = x }),
		"setMathMode:":        set(func(c *compileOptions, x uintptr) { c.safe = x == 0 }),
		"setFastMathEnabled:": set(func(c *compileOptions, x uintptr) { c.safe = x&0xff == 0 }),
	}
	methods["MTLLibrary"] = map[string]method{
		"functionNames": func(f *Fake, o *object, _ []uintptr) uintptr {
			a := &array{}
			for _, name := range o.data.(Library).Kernels() {
				item := f.make("NSString")
				item.text = name
				a.items = append(a.items, item)
			}
			list := f.autoreleased("NSArray")
			list.data = a
			return list.id
		},
		"newFunctionWithName:": func(f *Fake, o *object, a []uintptr) uintptr {
			name := f.find(a[0], "NSString")
			if name == nil {
				return 0
			}
			k := o.data.(Library).Kernel(name.text)
			if k == nil {
				return 0
			}
			function := f.make("MTLFunction")
			function.text, function.data = name.text, k
			return function.id
		},
	}
	methods["MTLFunction"] = map[string]method{}
	methods["MTLComputePipelineState"] = map[string]method{
		"maxTotalThreadsPerThreadgroup": func(f *Fake, o *object, _ []uintptr) uintptr { return uintptr(f.maxThreads(o.data.(Kernel))) },
		"threadExecutionWidth":          func(f *Fake, _ *object, _ []uintptr) uintptr { return uintptr(f.options.SimdWidth) },
		"staticThreadgroupMemoryLength": func(*Fake, *object, []uintptr) uintptr { return 0 },
	}
}

const languageVersion = 3<<16 + 1

// newLibrary compiles the very text that it is given. As Metal does, it returns
// an error beside a library that the compiler warns of: always, here.
func (f *Fake) newLibrary(source, options *object, failure uintptr) uintptr {
	if source == nil || options == nil {
		return 0
	}
	c := options.data.(*compileOptions)
	if !c.initialised {
		f.bad("compile options before init")
	}
	if c.version != languageVersion {
		f.bad("language version %#x; want %#x", c.version, languageVersion)
	}
	if f.options.Compile == nil {
		f.fail(failure, "this device compiles nothing")
		return 0
	}
	l, err := f.options.Compile(source.text, c.safe)
	if err != nil {
		f.fail(failure, err.Error())
		return 0
	}
	f.fail(failure, "program_source:1:1: warning: this is a fake")
	o := f.make("MTLLibrary")
	o.data = l
	return o.id
}

func (f *Fake) newPipeline(function *object, failure uintptr) uintptr {
	if function == nil {
		f.fail(failure, "no function")
		return 0
	}
	o := f.make("MTLComputePipelineState")
	o.text, o.data = function.text, function.data
	return o.id
}

// fail writes an NSError to where the caller wants it.
func (f *Fake) fail(where uintptr, text string) {
	e := f.autoreleased("NSError")
	e.text = text
	*(*uintptr)(unsafe.Pointer(pointer(where))) = e.id
}
