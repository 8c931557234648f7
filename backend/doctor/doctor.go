// Package doctor runs the checks of a device one after the other, each with a
// time limit, and tells of each as it is done. What is checked is the backends'.
package doctor

import (
	"fmt"
	"regexp"
	"time"
)

// Options say what is checked.
type Options struct {
	// Only, when set, picks the checks by their names.
	Only *regexp.Regexp
	// Patience is how long one check may take, 2 minutes where it is 0.
	Patience time.Duration
	// Report, when set, is told of each fact and each check as it is known.
	Report func(Check)
}

// Check is one fact about the machine, or one test of it.
type Check struct {
	Name   string  `json:"name"`
	Status string  `json:"status"` // StatusOK, StatusFailed or StatusFact
	Detail string  `json:"detail,omitempty"`
	Millis float64 `json:"ms,omitempty"`       // how long a test took
	Rate   float64 `json:"gb_per_s,omitempty"` // what a measurement gave, in 10⁹ bytes a second
}

// The values of Check.Status.
const (
	StatusOK     = "ok"
	StatusFailed = "FAIL"
	StatusFact   = ""
)

const defaultPatience = 2 * time.Minute

// Examination is a series of checks, run by a goroutine of its own.
type Examination struct {
	only    *regexp.Regexp
	events  chan event
	current string // the check that is running
	lost    bool   // it did not end
}

// event is the beginning of a check, or one that is done.
type event struct {
	begins string
	check  Check
}

// Examine runs a series of checks. One that does not end is failed and ends the
// series; its thread is then lost to the process.
func Examine(o Options, run func(*Examination)) []Check {
	e := &Examination{only: o.Only, events: make(chan event)}
	go func() {
		defer close(e.events)
		run(e)
	}()
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	var checks []Check
	for {
		c, ok := e.next(o.Patience)
		if !ok {
			return checks
		}
		checks = append(checks, c)
		if o.Report != nil {
			o.Report(c)
		}
	}
}

// next waits for the next check that is done.
func (e *Examination) next(patience time.Duration) (Check, bool) {
	for !e.lost {
		select {
		case v, ok := <-e.events:
			if !ok {
				return Check{}, false
			}
			if e.current = v.begins; v.begins == "" {
				return v.check, true
			}
		case <-time.After(patience):
			e.lost = true
			return Check{Name: e.current, Status: StatusFailed, Detail: fmt.Sprintf("no end after %v; the checks behind it were not run", patience)}, true
		}
	}
	return Check{}, false
}

// Wanted reports whether a check of that name was asked for.
func (e *Examination) Wanted(name string) bool { return e.only == nil || e.only.MatchString(name) }

// Fact tells something about the machine.
func (e *Examination) Fact(name, detail string) {
	e.events <- event{check: Check{Name: name, Status: StatusFact, Detail: detail}}
}

// Test runs one check, wanted or not, which may add a detail or a rate, and reports
// whether it passed. A panic is a failure.
func (e *Examination) Test(name string, run func(c *Check) error) bool {
	e.events <- event{begins: name}
	c := Timed(name, run)
	e.events <- event{check: c}
	return c.Status == StatusOK
}

// Timed is a check outside a series.
func Timed(name string, run func(c *Check) error) Check {
	c := Check{Name: name, Status: StatusOK}
	start := time.Now()
	err := Guarded(func() error { return run(&c) })
	c.Millis = float64(time.Since(start).Microseconds()) / 1000
	if err != nil {
		c.Status, c.Detail = StatusFailed, err.Error()
	}
	return c
}

// Guarded makes an error of a panic.
func Guarded(run func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return run()
}
