package metal

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"windrow/metal/driver"
	"windrow/metal/emulator"
	"windrow/metal/fakeobjc"
	"windrow/metal/kernels"
)

// fault is a single mistake in a kernel that the self-tests must notice.
type fault struct {
	file string // of kernels, without its suffix
	what string
	// from is the text that becomes to: occurrence nth of it in the file, or, where
	// nth is 0, the only one.
	from string
	nth  int
	to   string
	by   string // beginning of the names of the self-tests that must notice
	// outside tells that the kernel leaves its memory by more than the guards of
	// buffers, or reads vectors at any place, which ends the process: only the
	// checked build, which stops it first, runs it.
	outside bool
	often   bool // planted without WINDROW_SLOW too
}

// plant puts the fault in the text of a library, and tells whether the library
// has the file.
func (f *fault) plant(source string) (planted string, has bool, err error) {
	if !strings.Contains(source, `"`+f.file+`.metal"`) {
		return source, false, nil
	}
	parts := lineDirective.FindAllStringSubmatchIndex(source, -1)
	var text strings.Builder
	seen := 0
	for i, part := range parts {
		end := len(source)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		section := source[part[0]:end]
		if source[part[2]:part[3]] == f.file+".metal" {
			has = true
			for at := 0; ; {
				next := strings.Index(section[at:], f.from)
				if next < 0 {
					break
				}
				at += next
				if seen++; seen == max(f.nth, 1) {
					section = section[:at] + f.to + section[at+len(f.from):]
					at += len(f.to)
				} else {
					at += len(f.from)
				}
			}
		}
		text.WriteString(section)
	}
	if has && (seen < f.nth || seen == 0) {
		return "", true, fmt.Errorf("%s has %d times %q", f.file, seen, f.from)
	}
	if has && f.nth == 0 && seen > 1 {
		return "", true, fmt.Errorf("%s has %d times %q: which of them?", f.file, seen, f.from)
	}
	return text.String(), has, nil
}

var lineDirective = regexp.MustCompile(`(?m)^#line \d+ "(.*)"\n`)

// notice is what the self-tests say of the fault in one build, or nil.
func (f *fault) notice(t *testing.T, build emulator.Build) (said error) {
	// In another order than that of their numbers threads depend on more.
	fake := fakeobjc.New(fakeobjc.Options{Compile: fakeobjc.Emulated(build, 1)})
	d, err := newDevice(driver.New(fake))
	if err != nil {
		t.Fatal(err)
	}
	var mistake error
	reached := false
	d.source = func(file string) (string, error) {
		source, err := kernels.Source(file)
		has := false
		if err == nil {
			source, has, err = f.plant(source)
		}
		if err == nil && has {
			reached = true
			if _, e := emulator.Compile(source, build); e != nil {
				err = fmt.Errorf("the compiler notices: %w", e)
			}
		}
		if err != nil {
			mistake = err
		}
		return source, err
	}
	ran := 0
	for _, s := range selfTests {
		if said == nil && strings.HasPrefix(s.name, f.by) {
			ran++
			err := s.try(d)
			if p := fake.Problems(); err == nil && len(p) > 0 {
				err = errors.New(p[0])
			}
			if err != nil {
				said = fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	switch err := d.close(); {
	case mistake != nil:
		t.Fatal(mistake)
	case ran == 0:
		t.Fatalf("no self-test is called %q", f.by)
	case !reached:
		t.Fatalf("%q does not use %s", f.by, f.file)
	case err != nil:
		t.Error(err)
	}
	return said
}

// TestMutations plants one fault at a time: the self-tests must notice each, by
// values or, where these can be right by chance, by the emulator's checker.
// Without WINDROW_SLOW it plants a few.
func TestMutations(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("a GPU should not run such kernels")
	}
	emulator.Available(t)
	var by [3]atomic.Int32
	t.Run("fault", func(t *testing.T) {
		for _, f := range faults {
			if !f.often && os.Getenv("WINDROW_SLOW") == "" {
				continue
			}
			t.Run(f.file+", "+f.what, func(t *testing.T) {
				t.Parallel()
				// What only fast math shows comes last.
				for _, build := range []emulator.Build{emulator.Plain, emulator.Checked, emulator.Fast} {
					if f.outside && build != emulator.Checked {
						continue
					}
					if said := f.notice(t, build); said != nil {
						by[build].Add(1)
						t.Logf("%v: %v", build, said)
						return
					}
				}
				t.Errorf("%s: no self-test %q notices", f.what, f.by)
			})
		}
	})
	t.Logf("noticed by values %d, by the checker alone %d, by fast math alone %d",
		by[emulator.Plain].Load(), by[emulator.Checked].Load(), by[emulator.Fast].Load())
}

// TestMutationsPlanted: all faults can be planted, with no compiler at hand too.
func TestMutationsPlanted(t *testing.T) {
	sources := map[string]string{}
	for _, name := range kernels.Names() {
		source, err := kernels.Source(name)
		if err != nil {
			t.Fatal(err)
		}
		sources[name] = source
	}
	names := map[string]bool{}
	for _, f := range faults {
		if names[f.file+f.what] {
			t.Errorf("%s, %s: twice", f.file, f.what)
		}
		names[f.file+f.what] = true
		found := false
		for name, source := range sources {
			planted, has, err := f.plant(source)
			found = found || has
			switch {
			case err != nil:
				t.Errorf("%s, %s: %s: %v", f.file, f.what, name, err)
			case has && planted == source:
				t.Errorf("%s, %s: changes nothing in %s", f.file, f.what, name)
			}
		}
		if !found {
			t.Errorf("%s, %s: no library has that file", f.file, f.what)
		}
	}
}
