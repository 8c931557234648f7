package cuda

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync/atomic"
	"time"

	"windrow/cuda/kernels"
)

// translation is all kernels of a file on their way to the device's own code.
type translation struct {
	file    string
	kernels int
	results chan translated
}

// translated is one kernel; by holds it as if it were a device of its own.
type translated struct {
	name string
	by   *device
	took time.Duration
	err  error
}

// maxTranslators bounds the kernels that are translated at the same time.
const maxTranslators = 16

// translateFiles begins to translate all kernels of the files, several at a
// time: the driver takes up to seconds for one. Each translation is to be
// adopted before the device is closed.
func (d *device) translateFiles(files []string) []*translation {
	type job struct {
		*translation
		name string
	}
	var list []*translation
	var jobs []job
	for _, file := range files {
		names, err := kernels.Names(file, d.info.Major, d.info.Minor)
		t := &translation{file: file, kernels: len(names), results: make(chan translated, len(names)+1)}
		if err != nil {
			t.kernels++
			t.results <- translated{by: &device{}, err: err}
		}
		for _, name := range names {
			jobs = append(jobs, job{t, name})
		}
		list = append(list, t)
	}
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), maxTranslators, len(jobs)) {
		go func() {
			d.ctx.Enter()
			defer d.ctx.Leave()
			for i := int(next.Add(1)) - 1; i < len(jobs); i = int(next.Add(1)) - 1 {
				j, start := jobs[i], time.Now()
				by := &device{ctx: d.ctx, info: d.info, functions: map[entry]*function{}}
				_, err := by.function(kernel{file: j.file, name: j.name})
				j.results <- translated{j.name, by, time.Since(start), err}
			}
		}()
	}
	return list
}

// adopt waits for the file's kernels and makes them the device's. It says what
// took the longest.
func (d *device) adopt(t *translation) (detail string, err error) {
	var slowest translated
	for range t.kernels {
		r := <-t.results
		maps.Copy(d.functions, r.by.functions)
		if r.took > slowest.took {
			slowest = r
		}
		err = errors.Join(err, r.err)
	}
	return fmt.Sprintf("%d kernels, the slowest %s, %.2f s", t.kernels, slowest.name, slowest.took.Seconds()), err
}
