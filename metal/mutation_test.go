package metal

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"windrow/internal/testhelp"
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
	// checked tells that the checked build alone runs it: the kernel leaves its
	// memory by more than the guards of buffers, or reads vectors at any place,
	// which ends the process where nothing stops it; or values hardly show it.
	checked bool
	often   bool // planted where not all are, too
}

// allFaults reports whether TestMutations plants all faults, or a few.
func allFaults() bool {
	return os.Getenv("WINDROW_SLOW") != "" || os.Getenv("WINDROW_MUTATIONS") == "all"
}

// plant puts the fault in the text of a library, and reports whether the library
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

// needs is the kernels that a self-test runs, by the files that have them: to
// compile no others takes a third of the time.
type needs struct {
	once  sync.Once
	names map[string][]string
	err   error
}

var needed sync.Map // *needs by the self-test's name

// kernelsOf runs a self-test without a fault once.
func kernelsOf(t *testing.T, s selfTest) map[string][]string {
	t.Helper()
	v, _ := needed.LoadOrStore(s.name, new(needs))
	n := v.(*needs)
	n.once.Do(func() {
		n.names = map[string][]string{}
		d := testDevice(t, emulator.Plain, 0)
		n.err = s.try(d)
		for e := range d.pipelines {
			n.names[e.file] = append(n.names[e.file], e.kernel)
		}
		for _, names := range n.names {
			slices.Sort(names)
		}
	})
	if n.err != nil {
		t.Fatalf("%s, without a fault: %v", s.name, n.err)
	}
	return n.names
}

// notice is what the self-tests say of the fault in one build, or nil.
func (f *fault) notice(t *testing.T, build emulator.Build) error {
	t.Helper()
	ran, reached := 0, false
	for _, s := range selfTests {
		if !strings.HasPrefix(s.name, f.by) {
			continue
		}
		ran++
		names := kernelsOf(t, s)
		reaches := false
		for file := range names {
			source, err := kernels.Source(file)
			if err != nil {
				t.Fatal(err)
			}
			_, has, err := f.plant(source)
			if err != nil {
				t.Fatal(err)
			}
			reaches = reaches || has
		}
		if !reaches {
			continue
		}
		reached = true
		if err := f.noticedBy(t, s, names, build); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	switch {
	case ran == 0:
		t.Fatalf("no self-test is called %q", f.by)
	case !reached:
		t.Fatalf("%q does not use %s", f.by, f.file)
	}
	return nil
}

// noticedBy runs one self-test, which needs these kernels, with the fault.
func (f *fault) noticedBy(t *testing.T, s selfTest, names map[string][]string, build emulator.Build) error {
	t.Helper()
	var mistake error
	compile := func(source string, _ bool) (fakeobjc.Library, error) {
		file := lineDirective.FindStringSubmatch(source)[1]
		// In another order than that of their numbers threads depend on more.
		l, err := fakeobjc.Emulated(build, 1, names[strings.TrimSuffix(file, ".metal")]...)(source, false)
		if err != nil {
			mistake = fmt.Errorf("the compiler notices: %w", err)
		}
		return l, err
	}
	fake := fakeobjc.New(fakeobjc.Options{Compile: compile})
	d, err := newDevice(driver.New(fake))
	if err != nil {
		t.Fatal(err)
	}
	d.source = func(file string) (string, error) {
		source, err := kernels.Source(file)
		if err == nil {
			source, _, err = f.plant(source)
		}
		return source, err
	}
	said := s.try(d)
	if p := fake.Problems(); said == nil && len(p) > 0 {
		said = errors.New(p[0])
	}
	if said != nil && strings.Contains(said.Error(), "has no kernel") {
		mistake = fmt.Errorf("it runs what it does not without the fault: %w", said)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
	if mistake != nil {
		t.Fatal(mistake)
	}
	return said
}

// faultAlone names the only fault that a process is to plant.
const faultAlone = "WINDROW_FAULT"

// TestMutations plants one fault at a time: the self-tests must notice each, by
// values or, where these can be right by chance, by the emulator's checker. All
// are planted with WINDROW_MUTATIONS=all, which CI sets, and with WINDROW_SLOW,
// else a few.
func TestMutations(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("a GPU should not run such kernels")
	}
	emulator.Available(t)
	if !allFaults() {
		t.Log("left out: most of the planted faults: set WINDROW_MUTATIONS=all")
	}
	// A kernel with a fault may write anywhere: not where other tests run, and where it harms other faults' these
	// are tried again by themselves.
	if !testhelp.IsAlone(t) {
		text, passed := testhelp.RunAlone(t)
		var again []string
		for _, f := range faults {
			if name := f.file + ", " + f.what; !passed && (f.often || allFaults()) && !strings.Contains(text, "--- PASS: TestMutations/fault/"+strings.ReplaceAll(name, " ", "_")+" (") {
				again = append(again, name)
			}
		}
		if !passed && (len(again) == 0 || len(again) > 32) {
			t.Fatalf("%d faults failed, or others:\n%s", len(again), text)
		}
		for _, name := range again {
			if text, passed := testhelp.RunAlone(t, faultAlone+"="+name); !passed {
				t.Errorf("%s, by itself: failed\n%s", name, text)
			}
		}
		if i := strings.Index(text, "noticed by values"); i >= 0 {
			t.Log(strings.SplitN(text[i:], "\n", 2)[0])
		}
		if len(again) > 0 {
			t.Logf("harmed by other faults, and tried again by themselves: %q", again)
		}
		return
	}
	var by [4]atomic.Int32
	t.Run("fault", func(t *testing.T) {
		for _, f := range faults {
			if only := os.Getenv(faultAlone); !f.often && !allFaults() || only != "" && only != f.file+", "+f.what {
				continue
			}
			t.Run(f.file+", "+f.what, func(t *testing.T) {
				t.Parallel()
				// What only fast math shows comes last.
				for _, build := range []emulator.Build{emulator.Quick, emulator.Checked, emulator.Fast} {
					if f.checked && build != emulator.Checked {
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
		by[emulator.Quick].Load(), by[emulator.Checked].Load(), by[emulator.Fast].Load())
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
