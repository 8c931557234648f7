package terminal

import (
	"os"

	"golang.org/x/sys/windows"
)

// prepared has a console obey escape sequences, which it shows as text until a program
// asks, and reports whether it does: before Windows 10 it cannot. An input has nothing to
// prepare.
func prepared(f *os.File) bool {
	console := windows.Handle(f.Fd())
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(console, &info) != nil {
		return true
	}
	var mode uint32
	if windows.GetConsoleMode(console, &mode) != nil {
		return false
	}
	const wanted = windows.ENABLE_PROCESSED_OUTPUT | windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING
	return mode&wanted == wanted || windows.SetConsoleMode(console, mode|wanted) == nil
}
