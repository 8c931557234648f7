package terminal

import (
	"os"
	"testing"

	"golang.org/x/sys/windows"
)

// TestConsole: a console that shows escape sequences as text obeys them once it is asked
// for; its input is a terminal too, and is left as it is.
func TestConsole(t *testing.T) {
	const obeys = windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING
	out, err := os.OpenFile("CONOUT$", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no console here:", err)
	}
	defer out.Close()
	console := windows.Handle(out.Fd())
	var before, after uint32
	if err := windows.GetConsoleMode(console, &before); err != nil {
		t.Skip("no console here:", err)
	}
	defer windows.SetConsoleMode(console, before)
	if err := windows.SetConsoleMode(console, before&^obeys); err != nil {
		t.Fatal(err)
	}
	if _, ok := Is(out); !ok {
		t.Error("a console's output is no terminal")
	}
	if err := windows.GetConsoleMode(console, &after); err != nil || after&obeys == 0 || after&^obeys != before&^obeys {
		t.Errorf("mode %#x became %#x: %v", before, after, err)
	}
	in, err := os.OpenFile("CONIN$", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := windows.GetConsoleMode(windows.Handle(in.Fd()), &before); err != nil {
		t.Fatal(err)
	}
	if _, ok := Is(in); !ok {
		t.Error("a console's input is no terminal")
	}
	if err := windows.GetConsoleMode(windows.Handle(in.Fd()), &after); err != nil || after != before {
		t.Errorf("mode of the input %#x became %#x: %v", before, after, err)
	}
}
