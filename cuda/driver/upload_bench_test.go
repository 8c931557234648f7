package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/edsrzf/mmap-go"
)

// BenchmarkUpload measures how fast a file in the page cache comes to the GPU
// whose number WINDROW_CUDA_DEVICE holds, by way and number of workers, each
// time through a mapping of its own (the first touch of its pages included). The
// metric "registered" is 0 where the driver refused to register the file's pages.
func BenchmarkUpload(b *testing.B) {
	number, err := strconv.Atoi(os.Getenv("WINDROW_CUDA_DEVICE"))
	if err != nil {
		b.Skip("measures a GPU: set WINDROW_CUDA_DEVICE to its number")
	}
	d, err := Open(Options{})
	if err != nil {
		b.Fatal(err)
	}
	c, err := d.NewContext(number)
	if err != nil {
		b.Fatal(err)
	}
	c.Enter()
	defer c.Leave()
	defer c.Close()
	const n = 2 << 30
	name := filepath.Join(b.TempDir(), "weights")
	block := make([]byte, 64<<20)
	fill(block, 1)
	file, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	for range n / len(block) {
		if _, err := file.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	dst, err := c.Alloc(n)
	if err != nil {
		b.Fatal(err)
	}
	for _, staged := range []bool{false, true} {
		for _, sizes := range []uploadSizes{
			{1, 16 << 20, 4 << 20}, {2, 16 << 20, 4 << 20}, {4, 16 << 20, 4 << 20}, {8, 16 << 20, 4 << 20}, {12, 16 << 20, 4 << 20},
			{4, 64 << 20, 1 << 20}, {8, 64 << 20, 1 << 20}, {8, 4 << 20, 2 << 20}, {8, 4 << 20, 1 << 20}, {8, 16 << 20, 8 << 20}, defaultSizes(),
		} {
			name := fmt.Sprintf("staged=%t/workers=%d/piece=%dMiB/stage=%dMiB", staged, sizes.workers, sizes.piece>>20, sizes.stage>>20)
			b.Run(name, func(b *testing.B) {
				c.Enter()
				defer c.Leave()
				b.SetBytes(n)
				registered := 0.0
				for b.Loop() {
					data, err := mmap.Map(file, mmap.RDONLY, 0)
					if err != nil {
						b.Fatal(err)
					}
					u, err := c.NewUploader()
					if err != nil {
						b.Fatal(err)
					}
					u.InPlace, u.sizes = !staged, sizes
					if err := errors.Join(u.Upload(dst, data), u.Flush()); err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					if u.Registered() {
						registered = 1
					}
					if err := errors.Join(u.Close(), data.Unmap()); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				b.ReportMetric(registered, "registered")
			})
		}
	}
}
