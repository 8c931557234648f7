package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// ownSession parts a child from this console.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
}

// terminate ends a server. There is no signal that asks it to.
func terminate(p *os.Process, _ bool) error { return p.Kill() }

// alive reports whether a process is there.
func alive(p *os.Process) bool {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(p.Pid))
	if err != nil {
		return false
	}
	defer windows.CloseHandle(h)
	var code uint32
	const stillActive = 259
	return windows.GetExitCodeProcess(h, &code) == nil && code == stillActive
}
