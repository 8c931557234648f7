package launch

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"windrow/backend/vectors"
	"windrow/cuda/driver"
)

func init() { registerSelfTest("rows of the host's experts", checkHostRows) }

// checkHostRows has rows leave to page-locked memory, and others return from there: those of
// the step, and no other.
func checkHostRows(d *Device) error {
	b := &bed{d: d}
	defer b.free()
	r := rand.New(rand.NewPCG(23, 1))
	for _, s := range []struct{ rows, bucket, width, line int }{{1, 1, 64, 4}, {5, 8, 2048, 16}, {7, 8, 30, 2}, {3, 8, 1026, 64}} {
		if err := checkHostShape(d, b, r, s.rows, s.bucket, s.width, s.line); err != nil {
			return fmt.Errorf("%d of %d rows of %d, routing of %d: %w", s.rows, s.bucket, s.width, s.line, err)
		}
	}
	return nil
}

func checkHostShape(d *Device, b *bed, r *rand.Rand, rows, bucket, width, line int) error {
	l := LayoutHost(bucket, width, line)
	host, err := d.Context.HostAlloc(l.Size)
	if err != nil {
		return err
	}
	defer host.Close()
	x, routing, dst, made := vectors.Normals(r, bucket*width), vectors.Normals(r, bucket*line), vectors.Normals(r, bucket*width), vectors.Normals(r, bucket*width)
	untouched := float32(17)
	for _, part := range [][]float32{host.Floats(l.Rows, bucket*width), host.Floats(l.Routing, bucket*line)} {
		for i := range part {
			part[i] = untouched
		}
	}
	copy(host.Floats(l.Made, bucket*width), made)
	step := b.step(&StepValues{Rows: rows, Except: -1}, StepShape{Bucket: bucket})
	to, at := b.floats(dst), host.Address()
	d.RowsLeave(at, at+driver.Ptr(l.Routing), b.floats(x), b.floats(routing), width, line, step, bucket)
	d.RowsReturn(to, at+driver.Ptr(l.Made), width, step, bucket)
	if err := d.Take(); err != nil {
		return err
	}
	got := b.readFloats(to, bucket*width) // once the work is done
	if n := rows * width; !slices.Equal(host.Floats(l.Rows, n), x[:n]) || !slices.Equal(host.Floats(l.Routing, rows*line), routing[:rows*line]) {
		return fmt.Errorf("other rows left")
	}
	if n := rows * width; rows < bucket && (host.Floats(l.Rows, n+1)[n] != untouched || host.Floats(l.Routing, rows*line+1)[rows*line] != untouched) {
		return fmt.Errorf("more rows left than there are")
	}
	for i, v := range got {
		want := dst[i]
		if i < rows*width {
			want += made[i]
		}
		if v != want {
			return fmt.Errorf("element %d is %v, want %v", i, v, want)
		}
	}
	return nil
}
