package driver

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestCopies(t *testing.T) {
	c := testContext(t)
	const n = 1 << 12
	a, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	if c.Allocated() != 2*n {
		t.Errorf("%d bytes allocated, want %d", c.Allocated(), 2*n)
	}
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	host, err := c.HostAlloc(n)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*i + i>>8)
	}
	err = errors.Join(
		c.Upload(a, data),
		s.Copy(b, a, n), s.Zero(b+16, 5), s.CopyOut(host, 0, b, n), s.Synchronize(),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(data)
	clear(want[16:21])
	if !bytes.Equal(host.Bytes(), want) {
		t.Error("copied and cleared bytes differ")
	}
	copy(host.Bytes()[100:], "windrow")
	if err := s.CopyIn(a+7, host, 100, 7); err != nil {
		t.Fatal(err)
	}
	copy(data[7:], "windrow")
	got := make([]byte, n)
	if err := c.Download(got, a); err != nil || !bytes.Equal(got, data) {
		t.Errorf("bytes differ after a copy from pinned memory: %v", err)
	}
	if err := errors.Join(c.Upload(a, nil), c.Download(nil, a), s.Copy(a, b, 0), s.Zero(a, 0), s.CopyIn(a, host, n, 0)); err != nil {
		t.Errorf("copies of nothing: %v", err)
	}
	for what, err := range map[string]error{
		"upload past the end":           c.Upload(a+1, data),
		"download past the end":         c.Download(data, a+1),
		"copy past the end":             s.Copy(a, b+1, n),
		"copy of a negative length":     s.Copy(a, b, -1),
		"clearing past the end":         s.Zero(a+8, n),
		"clearing of a negative length": s.Zero(a, -1),
		"from past pinned memory":       s.CopyIn(a, host, 1, n),
		"from before pinned memory":     s.CopyIn(a, host, -1, 1),
		"to past pinned memory":         s.CopyOut(host, n, a, 1),
		"free within an allocation":     c.Free(a + 256),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		} else if !strings.HasPrefix(err.Error(), "cuda: ") {
			t.Errorf("%s: error %q", what, err)
		}
	}
	for _, bytes := range []int{0, -1} {
		if _, err := c.Alloc(bytes); err == nil {
			t.Errorf("Alloc(%d): no error", bytes)
		}
		if _, err := c.HostAlloc(bytes); err == nil {
			t.Errorf("HostAlloc(%d): no error", bytes)
		}
	}
	if err := errors.Join(c.Free(a), c.Free(b), c.Free(0), host.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if c.Allocated() != 0 {
		t.Errorf("%d bytes allocated after all is freed", c.Allocated())
	}
	if err := c.Free(a); err == nil {
		t.Error("freed twice without an error")
	}
	for what, err := range map[string]error{
		"CopyIn":       s.CopyIn(a, host, 0, 1),
		"Zero":         s.Zero(a, 1),
		"Copy":         s.Copy(a, b, 1),
		"Synchronize":  s.Synchronize(),
		"BeginCapture": s.BeginCapture(),
	} {
		if !errors.Is(err, errClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	if err := errors.Join(host.Close(), s.Close()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// Many goroutines use a context, each with a stream of its own.
func TestGoroutines(t *testing.T) {
	c := testContext(t)
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() { errs[i] = useContext(c, byte(i)) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func useContext(c *Context, seed byte) error {
	c.Enter()
	defer c.Leave()
	s, err := c.NewStream()
	if err != nil {
		return err
	}
	want := bytes.Repeat([]byte{seed, 3, 5}, 1000)
	got := make([]byte, len(want))
	for range 20 {
		p, err := c.Alloc(len(want))
		if err != nil {
			return err
		}
		c.Enter() // nested
		err = errors.Join(c.Upload(p, want), s.Zero(p, 1), s.Synchronize(), c.Download(got, p), c.Free(p))
		c.Leave()
		if err != nil {
			return err
		}
		if got[0] != 0 || !bytes.Equal(got[1:], want[1:]) {
			return errors.New("bytes of another goroutine")
		}
	}
	return s.Close()
}

// A closed context frees what is left and takes no more calls.
func TestCloseFreesTheRest(t *testing.T) {
	c := testContext(t)
	if _, err := c.Alloc(1000); err != nil {
		t.Fatal(err)
	}
	if _, err := c.HostAlloc(1000); err != nil {
		t.Fatal(err)
	}
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if left := len(c.remaining()); left != 3 || c.Allocated() != 1000 {
		t.Errorf("%d objects, %d bytes; want 3 and 1000", left, c.Allocated())
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if left := len(c.remaining()); left != 0 || c.Allocated() != 0 {
		t.Errorf("%d objects, %d bytes after Close", left, c.Allocated())
	}
	_, errAlloc := c.Alloc(1)
	_, errHost := c.HostAlloc(1)
	_, errLoad := c.Load(nil)
	_, errStream := c.NewStream()
	_, errEvent := c.NewEvent()
	_, errUploader := c.NewUploader()
	_, _, errInfo := c.MemInfo()
	for what, err := range map[string]error{
		"Alloc": errAlloc, "HostAlloc": errHost, "Load": errLoad, "NewStream": errStream, "NewEvent": errEvent,
		"NewUploader": errUploader, "MemInfo": errInfo, "Upload": c.Upload(1, []byte{1}), "Synchronize": c.Synchronize(),
		"a stream's": s.Synchronize(),
	} {
		if !errors.Is(err, errClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}
