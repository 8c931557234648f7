package driver

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/edsrzf/mmap-go"
)

// fill makes bytes that repeat nowhere near.
func fill(b []byte, seed uint64) {
	r := rand.NewChaCha8([32]byte{byte(seed)})
	r.Read(b)
}

// mapped is a file of n bytes, mapped for reading.
func mapped(t *testing.T, n int) []byte {
	t.Helper()
	data := make([]byte, n)
	fill(data, uint64(n))
	name := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mmap.Map(file, mmap.RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Unmap()
		file.Close()
	})
	return m
}

func TestUpload(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be removed")
	}
	source := mapped(t, 40<<20+123)
	uploadStage, uploadPiece := defaultSizes().stage, defaultSizes().piece
	for _, staged := range []bool{false, true} {
		c := testContext(t)
		for _, x := range []struct{ from, bytes, shift int }{
			{0, 1, 0}, {1, 2, 3}, {0, 4096, 0}, {4095, 2, 1}, {7, uploadStage - 1, 0}, {4096, uploadStage, 16}, {1, uploadStage + 1, 5},
			{5, uploadRegistered, 0}, {0, uploadPiece, 0}, {8192, uploadPiece + 1, 0}, {0, len(source), 0}, {3, len(source) - 5, 9},
		} {
			uploadOne(t, c, source[x.from:x.from+x.bytes], x.shift, staged)
		}
	}
}

// TestUploadBatches: what a batch had is there once it was waited for, whatever comes behind it.
func TestUploadBatches(t *testing.T) {
	c := testContext(t)
	u, err := c.NewUploader()
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if err := u.Batch().Wait(); err != nil {
		t.Errorf("nothing was uploaded: %v", err)
	}
	var sources [4][]byte
	var places [4]Ptr
	var batches [4]*Batch
	for i := range sources {
		sources[i] = make([]byte, 3*defaultSizes().piece+i)
		fill(sources[i], uint64(i))
		if places[i], err = c.Alloc(len(sources[i])); err != nil {
			t.Fatal(err)
		}
		defer c.Free(places[i])
		half := len(sources[i]) / 2
		if err := errors.Join(u.Upload(places[i], sources[i][:half]), u.Upload(places[i]+Ptr(half), sources[i][half:])); err != nil {
			t.Fatal(err)
		}
		if batches[i] = u.Batch(); i == 0 {
			continue
		}
		if err := batches[i-1].Wait(); err != nil { // while the next one is on its way
			t.Fatal(err)
		}
		got := make([]byte, len(sources[i-1]))
		if err := c.Download(got, places[i-1]); err != nil || !bytes.Equal(got, sources[i-1]) {
			t.Errorf("batch %d: other bytes (%v)", i-1, err)
		}
	}
	if err := errors.Join(u.Flush(), batches[3].Wait()); err != nil {
		t.Error(err)
	}
}

// uploadOne uploads twice to neighbouring addresses, so that an error in
// either's bounds shows, and compares.
func uploadOne(t *testing.T, c *Context, src []byte, shift int, staged bool) {
	t.Helper()
	n := len(src)
	guard := []byte{0xa5}
	p, err := c.Alloc(shift + n + 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free(p)
	if err := c.Upload(p+Ptr(shift+n), guard); err != nil {
		t.Fatal(err)
	}
	u, err := c.NewUploader()
	if err != nil {
		t.Fatal(err)
	}
	u.InPlace = !staged
	var last int64
	u.Progress = func(done int64) {
		if done <= last {
			t.Errorf("progress from %d to %d", last, done)
		}
		last = done
	}
	half := n / 2
	for _, part := range [][2]int{{half, n}, {0, half}} {
		if err := u.Upload(p+Ptr(shift+part[0]), src[part[0]:part[1]]); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Flush(); err != nil {
		t.Fatal(err)
	}
	if last != int64(n) {
		t.Errorf("progress ended at %d of %d bytes", last, n)
	}
	if u.Registered() == staged {
		t.Errorf("registered %v, staged %v", u.Registered(), staged)
	}
	got := make([]byte, n+1)
	if err := c.Download(got, p+Ptr(shift)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[:n], src) || got[n] != guard[0] {
		t.Errorf("%d bytes at %d, staged %v: the device has other bytes", n, shift, staged)
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
}

// Slices of Go's own memory, whose pages others share.
func TestUploadOfGoMemory(t *testing.T) {
	c := testContext(t)
	u, err := c.NewUploader()
	if err != nil {
		t.Fatal(err)
	}
	const n, count = 3<<20 + 17, 5
	p, err := c.Alloc(n * count)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free(p)
	all := make([]byte, n*count)
	fill(all, 7)
	for i := range count {
		if err := u.Upload(p+Ptr(i*n), all[i*n:(i+1)*n]); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Close(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(all))
	if err := c.Download(got, p); err != nil || !bytes.Equal(got, all) {
		t.Errorf("the device has other bytes: %v", err)
	}
}

// An upload past its memory fails, is said once and by Flush too, and leaves
// nothing behind (testContext counts).
func TestUploadError(t *testing.T) {
	c := testContext(t)
	for _, staged := range []bool{false, true} {
		u, err := c.NewUploader()
		if err != nil {
			t.Fatal(err)
		}
		u.InPlace = !staged
		p, err := c.Alloc(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		src := make([]byte, 24<<20)
		_ = u.Upload(p, src) // may or may not know yet
		if err := u.Flush(); err == nil {
			t.Errorf("staged %v: upload past the end without an error", staged)
		}
		if err := u.Upload(p, src[:1]); err == nil {
			t.Errorf("staged %v: the error is gone at the next upload", staged)
		}
		if err := u.Close(); err == nil {
			t.Errorf("staged %v: the error is gone at Close", staged)
		}
		if err := c.Free(p); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWholePages(t *testing.T) {
	page := os.Getpagesize()
	memory := make([]byte, 8*page)
	base := 0
	for ; len(memory) > base; base++ {
		if head, _ := wholePages(memory[base:]); head == 0 {
			break
		}
	}
	for _, x := range []struct{ from, to, head, body int }{
		{0, 3 * page, 0, 3 * page}, {1, 3 * page, page - 1, 2 * page}, {0, 3*page - 1, 0, 2 * page}, {5, 2*page + 5, page - 5, page},
	} {
		head, body := wholePages(memory[base+x.from : base+x.to])
		if head != x.head || body != x.body {
			t.Errorf("[%d, %d): head %d, body %d; want %d, %d", x.from, x.to, head, body, x.head, x.body)
		}
	}
}
