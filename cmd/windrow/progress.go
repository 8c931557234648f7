package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"windrow/internal/terminal"
)

// progress shows on standard error how far a long command is: a bar in a
// terminal, a line now and then in a log.
type progress struct {
	out   io.Writer
	label string
	bar   *progressbar.ProgressBar
	next  time.Time // when a log gets its next line
}

// logEvery is the time between lines of progress in a log.
const logEvery = 15 * time.Second

func newProgress(out io.Writer, label string) *progress {
	return &progress{out: out, label: label, next: time.Now().Add(logEvery)}
}

// update notes that done of total are done; note is shown behind the bar.
func (p *progress) update(done, total int, note string) {
	if _, ok := terminal.Is(p.out); !ok {
		if now := time.Now(); now.After(p.next) {
			p.next = now.Add(logEvery)
			fmt.Fprintf(p.out, "%s %d of %d %s\n", p.label, done, total, note)
		}
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(p.out), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(true))
	}
	if p.bar.GetMax() != total {
		p.bar.ChangeMax(total)
	}
	p.bar.Describe(fmt.Sprintf("%s %-36.36s", p.label, note))
	p.bar.Set(done)
}

// finish takes the bar away.
func (p *progress) finish() {
	if p.bar != nil {
		p.bar.Clear()
	}
}

// uploadBarBytes is how large a model has to be for its upload to show a bar.
const uploadBarBytes = 1 << 30

// uploadProgress shows how much of a large model has come to its device.
func uploadProgress(out io.Writer) func(done, total int64) {
	bar := newProgress(out, "upload")
	return func(done, total int64) {
		if total < uploadBarBytes {
			return
		}
		bar.update(int(done>>20), int(total>>20), "MiB")
		if done >= total {
			bar.finish()
		}
	}
}
