//go:build unix

package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// ownSession parts a child from this terminal.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// terminate asks a server to end; now: at once, which is what a second signal means.
func terminate(p *os.Process, now bool) error {
	err := p.Signal(syscall.SIGTERM)
	for end := time.Now().Add(2 * time.Second); now && err == nil && alive(p) && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		err = p.Signal(syscall.SIGTERM)
	}
	if err == os.ErrProcessDone || now && !alive(p) {
		return nil
	}
	return err
}

// alive reports whether a process runs. One that has ended, and whose parent has not
// asked for its end, as in containers without an init, does not.
func alive(p *os.Process) bool {
	if err := p.Signal(syscall.Signal(0)); err != nil && err != syscall.EPERM {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
	if err != nil {
		return true // there is no such file system
	}
	// The state stands behind the name, which is in brackets and may hold any.
	_, state, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
