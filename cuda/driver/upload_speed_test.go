package driver

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/edsrzf/mmap-go"
)

// TestUploadSpeed prints how fast a file in the page cache comes to the GPU
// whose number WINDROW_CUDA_DEVICE holds, by way and number of workers, each
// time through a mapping of its own (the first touch of its pages included).
func TestUploadSpeed(t *testing.T) {
	number, err := strconv.Atoi(os.Getenv("WINDROW_CUDA_DEVICE"))
	if err != nil {
		t.Skip("measures a GPU: set WINDROW_CUDA_DEVICE")
	}
	d, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.NewContext(number)
	if err != nil {
		t.Fatal(err)
	}
	c.Enter()
	defer c.Leave()
	defer c.Close()
	const n = 2 << 30
	name := filepath.Join(t.TempDir(), "weights")
	block := make([]byte, 64<<20)
	fill(block, 1)
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range n / len(block) {
		if _, err := file.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	dst, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, %d processors", c.Info().Name, runtime.GOMAXPROCS(0))
	for _, staged := range []bool{false, true} {
		for _, sizes := range []uploadSizes{
			{1, 16 << 20, 4 << 20}, {2, 16 << 20, 4 << 20}, {4, 16 << 20, 4 << 20}, {8, 16 << 20, 4 << 20}, {12, 16 << 20, 4 << 20},
			{4, 64 << 20, 1 << 20}, {8, 64 << 20, 1 << 20}, {8, 4 << 20, 2 << 20}, {8, 4 << 20, 1 << 20}, {8, 16 << 20, 8 << 20}, defaultSizes(),
		} {
			var took [3]time.Duration
			registered := false
			for i := range took {
				start := time.Now()
				data, err := mmap.Map(file, mmap.RDONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				u, err := c.NewUploader()
				if err != nil {
					t.Fatal(err)
				}
				u.InPlace, u.sizes = !staged, sizes
				if err := errors.Join(u.Upload(dst, data), u.Flush()); err != nil {
					t.Fatal(err)
				}
				took[i] = time.Since(start)
				registered = u.Registered()
				if err := errors.Join(u.Close(), data.Unmap()); err != nil {
					t.Fatal(err)
				}
			}
			rate := func(d time.Duration) float64 { return n / d.Seconds() / 1e9 }
			t.Logf("registered %5v, %2d workers, pieces of %2d MiB, stages of %d MiB: %5.1f %5.1f %5.1f GB/s", registered,
				sizes.workers, sizes.piece>>20, sizes.stage>>20, rate(took[0]), rate(took[1]), rate(took[2]))
		}
	}
}
