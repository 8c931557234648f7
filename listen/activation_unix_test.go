//go:build unix

package listen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain is also the service that the tests of activation start.
func TestMain(m *testing.M) {
	if names := os.Getenv("LISTEN_TEST_SERVICE"); names != "" {
		service(strings.Split(names, ","))
		return
	}
	os.Exit(m.Run())
}

// service answers a connection at each of the sockets of all names, and says of each
// name how many it had.
func service(names []string) {
	for _, name := range names {
		list, err := Address{Inherited, strings.TrimPrefix(name, "=")}.Listen()
		if err != nil {
			fmt.Printf("%s: %v\n", name, err)
			continue
		}
		fmt.Printf("%s: %d\n", name, len(list))
		for _, l := range list {
			c, err := l.Accept()
			if err != nil {
				fmt.Println(err)
				continue
			}
			io.WriteString(c, name)
			c.Close()
			l.Close()
		}
	}
	fmt.Println("environment", os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_PID"))
}

// TestActivation hands sockets over as systemd does, and looks at what is left of them.
func TestActivation(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	path := filepath.Join(shortFolder(t), "s")
	local, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	var files []*os.File
	for _, l := range []interface{ File() (*os.File, error) }{web.(*net.TCPListener), local.(*net.UnixListener)} {
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	for _, test := range []struct{ names, pid, want string }{
		{"web,local,web", "$$", "web: 1\nlocal: 1\nweb: listen at fd:web: no such socket"},
		{"=", "$$", "=: 2\n"},
		{"other,=", "$$", "other: listen at fd:other: no such socket"},
		{"=", "1", "=: listen at fd:: no such socket"},
	} {
		c := exec.Command("sh", "-c", "LISTEN_PID="+test.pid+` exec "$0"`, self)
		c.Env = append(os.Environ(), "LISTEN_FDS=2", "LISTEN_FDNAMES=web:local", "LISTEN_TEST_SERVICE="+test.names)
		c.ExtraFiles = files
		if test.pid == "$$" {
			for _, l := range []net.Listener{web, local} {
				go func() { // as a client whose request activates
					if c, err := net.Dial(l.Addr().Network(), l.Addr().String()); err == nil {
						io.Copy(io.Discard, c)
						c.Close()
					}
				}()
			}
		}
		out, err := c.Output()
		if err != nil || !strings.HasPrefix(string(out), test.want) || test.pid == "$$" && !strings.HasSuffix(string(out), "environment  \n") {
			t.Errorf("%s: %v, %q, want %q", test.names, err, out, test.want)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: the socket was removed: %v", test.names, err)
		}
	}
}

// TestNotifier: what systemd hears, and that the watchdog is silent when the service is
// not well.
func TestNotifier(t *testing.T) {
	path := filepath.Join(shortFolder(t), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", fmt.Sprint(os.Getpid()))
	hear := func(within time.Duration) string {
		var b [256]byte
		l.SetReadDeadline(time.Now().Add(within))
		n, err := l.Read(b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	n := NewNotifier()
	for what, say := range map[string]func(){"READY=1\nSTATUS=a model": func() { n.Ready("a model") }, "STOPPING=1": n.Stopping, "RELOADING=1": n.Reloading} {
		if say(); hear(time.Minute) != what {
			t.Errorf("not heard: %q", what)
		}
	}
	for _, well := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { n.Watch(ctx, func() bool { return well }); close(done) }()
		switch well {
		case true:
			for range 3 {
				if got := hear(time.Minute); got != "WATCHDOG=1" {
					t.Errorf("heard %q", got)
				}
			}
		case false:
			if got := hear(200 * time.Millisecond); got != "" {
				t.Errorf("heard %q", got)
			}
		}
		cancel()
		<-done
		for hear(time.Millisecond) != "" {
		}
	}
	t.Setenv("WATCHDOG_USEC", "")
	NewNotifier().Watch(t.Context(), func() bool { t.Error("asked"); return true })
}
