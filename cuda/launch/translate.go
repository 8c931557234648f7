package launch

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync/atomic"
	"time"

	"windrow/cuda/kernels"
)

// Translation is all kernels of a file on their way to the device's own code.
type Translation struct {
	File    string
	kernels int
	results chan translated
}

// translated is one kernel; by holds it as if it were a device of its own.
type translated struct {
	name string
	by   *Device
	took time.Duration
	err  error
}

// maxTranslators bounds the kernels that are translated at the same time.
const maxTranslators = 16

// TranslateFiles begins to translate all kernels of the files, several at a
// time: the driver takes up to seconds for one. Each translation is to be
// adopted before the device is closed.
func (d *Device) TranslateFiles(files []string) []*Translation {
	type job struct {
		*Translation
		name string
	}
	var list []*Translation
	var jobs []job
	for _, file := range files {
		names, err := kernels.Names(file, d.Info.Major, d.Info.Minor)
		t := &Translation{File: file, kernels: len(names), results: make(chan translated, len(names)+1)}
		if err != nil {
			t.kernels++
			t.results <- translated{by: &Device{}, err: err}
		}
		for _, name := range names {
			jobs = append(jobs, job{t, name})
		}
		list = append(list, t)
	}
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), maxTranslators, len(jobs)) {
		go func() {
			d.Context.Enter()
			defer d.Context.Leave()
			for i := int(next.Add(1)) - 1; i < len(jobs); i = int(next.Add(1)) - 1 {
				j, start := jobs[i], time.Now()
				by := &Device{Context: d.Context, Info: d.Info, Code: d.Code, functions: map[entry]*function{}}
				_, err := by.function(kernel{file: j.File, name: j.name})
				j.results <- translated{j.name, by, time.Since(start), err}
			}
		}()
	}
	return list
}

// Adopt waits for the file's kernels and makes them the device's. It says what
// took the longest.
func (d *Device) Adopt(t *Translation) (detail string, err error) {
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
