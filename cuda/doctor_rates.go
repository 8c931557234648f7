package cuda

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/edsrzf/mmap-go"

	"windrow/backend/doctor"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

// ratesBytes bounds what the copies of a measurement move.
const ratesBytes = 1 << 30

// rateRoom is what a measurement moves: at most an eighth of the free memory.
func rateRoom(d *launch.Device) (int, error) {
	free, _, err := d.Context.MemInfo()
	if err != nil {
		return 0, err
	}
	n := int(min(free/8, ratesBytes)) &^ 0xffff
	if n == 0 {
		return 0, fmt.Errorf("%w: %d bytes free", driver.ErrNoMemory, free)
	}
	return n, nil
}

// copying calls run with what enqueues a copy within the device, and with the
// bytes of one, read and written both counted.
func copying(d *launch.Device, run func(enqueue func() error, bytes int) error) error {
	n, err := rateRoom(d)
	if err != nil {
		return err
	}
	src, err := d.Context.Alloc(n)
	if err != nil {
		return err
	}
	defer d.Context.Free(src)
	dst, err := d.Context.Alloc(n)
	if err != nil {
		return err
	}
	defer d.Context.Free(dst)
	return run(func() error { return d.Stream.Copy(dst, src, n) }, 2*n)
}

// measureCopy is the rate of a copy within the device.
func measureCopy(d *launch.Device, c *doctor.Check) error {
	return copying(d, func(enqueue func() error, bytes int) (err error) {
		c.Detail = fmt.Sprintf("read and written, %d MiB", bytes>>21)
		c.Rate, err = bestRate(4, bytes, func() error { return errors.Join(enqueue(), d.Stream.Synchronize()) })
		return err
	})
}

// measureUpload is the rate at which a file that is in the page cache comes to
// the device through an Uploader, each time through a mapping of its own.
func measureUpload(d *launch.Device, c *doctor.Check, staged bool) (err error) {
	n, err := rateRoom(d)
	if err != nil {
		return err
	}
	file, err := fileOf(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	dst, err := d.Context.Alloc(n)
	if err != nil {
		return err
	}
	defer d.Context.Free(dst)
	registered := false
	c.Rate, err = bestRate(3, n, func() error {
		data, err := mmap.Map(file, mmap.RDONLY, 0)
		if err != nil {
			return err
		}
		u, err := d.Context.NewUploader()
		if err != nil {
			return errors.Join(err, data.Unmap())
		}
		u.InPlace = !staged
		err = errors.Join(u.Upload(dst, data[:n]), u.Flush())
		registered = u.Registered()
		return errors.Join(err, u.Close(), data.Unmap())
	})
	c.Detail = fmt.Sprintf("%d MiB of a mapped file", n>>20)
	if !staged && !registered {
		c.Detail += ", staged since the driver refuses to register it"
	}
	return err
}

// fileOf makes a temporary file of n bytes, a multiple of 64 KiB.
func fileOf(n int) (*os.File, error) {
	file, err := os.CreateTemp("", "windrow-doctor-*")
	if err != nil {
		return nil, err
	}
	block := make([]byte, 1<<16)
	for i := range block {
		block[i] = byte(i * 7)
	}
	for at := 0; at < n; at += len(block) {
		if _, err := file.Write(block); err != nil {
			return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
		}
	}
	return file, nil
}

// measureDownload is the rate of a copy to pinned memory.
func measureDownload(d *launch.Device, c *doctor.Check) error {
	n, err := rateRoom(d)
	if err != nil {
		return err
	}
	n = min(n, 128<<20)
	src, err := d.Context.Alloc(n)
	if err != nil {
		return err
	}
	defer d.Context.Free(src)
	dst, err := d.Context.HostAlloc(n)
	if err != nil {
		return err
	}
	defer dst.Close()
	c.Detail = fmt.Sprintf("%d MiB to pinned memory", n>>20)
	c.Rate, err = bestRate(4, n, func() error { return errors.Join(d.Stream.CopyOut(dst, 0, src, n), d.Stream.Synchronize()) })
	return err
}

// bestRate runs a copy of n bytes some times and returns the best rate in
// 10⁹ bytes a second.
func bestRate(times, n int, run func() error) (float64, error) {
	best := 0.0
	for range times {
		start := time.Now()
		if err := run(); err != nil {
			return 0, err
		}
		best = max(best, float64(n)/time.Since(start).Seconds()/1e9)
	}
	return best, nil
}
