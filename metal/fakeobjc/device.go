package fakeobjc

import (
	"unsafe"
)

func init() {
	methods["@NSString"] = map[string]method{
		"stringWithUTF8String:": func(f *Fake, _ *object, a []uintptr) uintptr { return f.string(cString(a[0])) },
	}
	methods["NSString"] = map[string]method{
		"UTF8String": func(_ *Fake, o *object, _ []uintptr) uintptr {
			o.memory = append([]byte(o.text), 0)
			return uintptr(unsafe.Pointer(&o.memory[0]))
		},
	}
	methods["NSError"] = map[string]method{
		"localizedDescription": func(f *Fake, o *object, _ []uintptr) uintptr { return f.string(o.text) },
		"code":                 func(*Fake, *object, []uintptr) uintptr { return 2 },
	}
	methods["NSArray"] = map[string]method{
		"count": func(_ *Fake, o *object, _ []uintptr) uintptr { return uintptr(len(o.data.(*array).items)) },
		"objectAtIndex:": func(f *Fake, o *object, a []uintptr) uintptr {
			items := o.data.(*array).items
			if int(a[0]) >= len(items) {
				f.bad("item %d of an array of %d", a[0], len(items))
				return 0
			}
			return items[a[0]].id
		},
	}
	methods["@NSProcessInfo"] = map[string]method{
		"processInfo": func(f *Fake, _ *object, _ []uintptr) uintptr { return f.lasting("NSProcessInfo").id },
	}
	methods["NSProcessInfo"] = map[string]method{
		"operatingSystemVersionString": text("Version 14.6 (fake)"),
	}
	methods["MTLArchitecture"] = map[string]method{"name": text("applegpu_fake")}
	methods["MTLDevice"] = map[string]method{
		"name":                         text("Fake GPU"),
		"architecture":                 func(f *Fake, _ *object, _ []uintptr) uintptr { return f.autoreleased("MTLArchitecture").id },
		"maxBufferLength":              func(f *Fake, _ *object, _ []uintptr) uintptr { return uintptr(f.options.MaxBufferLength) },
		"recommendedMaxWorkingSetSize": func(*Fake, *object, []uintptr) uintptr { return 12 << 30 },
		"maxThreadgroupMemoryLength":   func(*Fake, *object, []uintptr) uintptr { return threadgroupMemory },
		"hasUnifiedMemory":             func(*Fake, *object, []uintptr) uintptr { return boolean(true) },
		"supportsFamily:":              func(f *Fake, _ *object, a []uintptr) uintptr { return boolean(f.supports(int(a[0]))) },
		"newCommandQueue":              func(f *Fake, _ *object, _ []uintptr) uintptr { return f.make("MTLCommandQueue").id },
		"newBufferWithLength:options:": func(f *Fake, _ *object, a []uintptr) uintptr { return f.newBuffer(int(a[0]), a[1]) },
		"newBufferWithBytesNoCopy:length:options:deallocator:": func(f *Fake, _ *object, a []uintptr) uintptr {
			return f.newBufferNoCopy(a[0], int(a[1]), a[2], a[3])
		},
		"newLibraryWithSource:options:error:": func(f *Fake, _ *object, a []uintptr) uintptr {
			return f.newLibrary(f.find(a[0], "NSString"), f.find(a[1], "MTLCompileOptions"), a[2])
		},
		"newComputePipelineStateWithFunction:error:": func(f *Fake, _ *object, a []uintptr) uintptr {
			return f.newPipeline(f.find(a[0], "MTLFunction"), a[1])
		},
	}
}

const threadgroupMemory = 32 << 10

// supports answers for an Apple GPU on a Mac.
func (f *Fake) supports(family int) bool {
	switch {
	case family > 1000 && family <= 1000+f.options.Family:
		return true
	case family >= 2001 && family <= 2002, family >= 3001 && family <= 3003:
		return true
	}
	return family == 5001 && f.options.Family >= 7
}

// text is a message that returns a string.
func text(s string) method {
	return func(f *Fake, _ *object, _ []uintptr) uintptr { return f.string(s) }
}

func cString(a uintptr) string {
	p, n := pointer(a), 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
