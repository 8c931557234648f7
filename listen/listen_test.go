package listen

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// shortFolder is a folder whose name leaves room for a socket's.
func shortFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// at listens at one address.
func at(address string) (net.Listener, error) {
	a, err := Parse(address)
	if err != nil {
		return nil, err
	}
	list, err := a.Listen()
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func TestParse(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	for s, want := range map[string]Address{
		"127.0.0.1:1": {TCP, "127.0.0.1:1"}, "tcp:[::1]:1": {TCP, "[::1]:1"}, ":8": {TCP, ":8"}, "tcp:x:8": {TCP, "x:8"},
		"unix:/a/b": {Unix, "/a/b"}, "unix:b:c": {Unix, "b:c"}, "unix:": {Unix, filepath.Join("/run/user/7", "windrow", "sock")},
		"fd:": {Inherited, ""}, "fd:web": {Inherited, "web"},
	} {
		if runtime.GOOS == "windows" && s == "unix:" {
			continue
		}
		a, err := Parse(s)
		if err != nil || a != want {
			t.Errorf("%q: %v %v, want %v", s, a, err, want)
		}
		if again, err := Parse(a.String()); err != nil || again != a {
			t.Errorf("%q is written as %q, which is read as %v, %v", s, a, again, err)
		}
	}
	for s, want := range map[string]string{"": "want HOST:PORT", "127.0.0.1": "want HOST:PORT", "tcp:": "want HOST:PORT", "[::1]": "want HOST:PORT",
		"unix:" + strings.Repeat("x", 104): "the path has 104 bytes: want 1 to 103"} {
		if a, err := Parse(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v %v", s, a, err)
		}
	}
}

func TestPrivate(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:1": true, "localhost:1": true, "[::1]:1": true, "unix:/x": true, "fd:": true, "tcp:127.3.0.1:1": true,
		"0.0.0.0:1": false, ":1": false, "10.0.0.1:1": false, "x:1": false, "[::]:1": false, "localhost.evil.example:1": false} {
		if a, err := Parse(address); err != nil || a.Private() != want {
			t.Errorf("%q: private %t, %v", address, !want, err)
		}
	}
	for _, a := range []struct {
		addr net.Addr
		want bool
	}{{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, true}, {&net.TCPAddr{IP: net.IPv6unspecified, Port: 1}, false}, {&net.UnixAddr{Net: "unix", Name: "/x"}, true}} {
		if PrivateAddr(a.addr) != a.want {
			t.Errorf("%v: private %t", a.addr, !a.want)
		}
	}
}

// TestDefaultSocket: its folder is kept from others, also where it was there before.
func TestDefaultSocket(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes are the system's there")
	}
	folder := shortFolder(t)
	t.Setenv("XDG_RUNTIME_DIR", folder)
	if err := os.Mkdir(filepath.Join(folder, "windrow"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := at("unix:")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]os.FileMode{"windrow": 0o700, "windrow/sock": 0o600, "windrow/sock.lock": 0o600} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	t.Setenv("XDG_RUNTIME_DIR", "relative")
	t.Setenv("XDG_CACHE_HOME", "/cache")
	if path, err := DefaultSocket(); err != nil || runtime.GOOS == "linux" && path != "/cache/windrow/sock" {
		t.Errorf("%s, %v", path, err)
	}
}

// TestSockets is the table of what may be at a socket's path before a server starts.
func TestSockets(t *testing.T) {
	refused := func(t *testing.T, path, want string) {
		t.Helper()
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := at("unix:" + path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("it was touched: %v", err)
		}
	}
	taken := func(t *testing.T, path string) {
		t.Helper()
		l, err := at("unix:" + path)
		if err != nil {
			t.Fatal(err)
		}
		if pid, err := Holder(path); err != nil || pid != os.Getpid() {
			t.Errorf("held by %d, %v", pid, err)
		}
		l.Close()
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
		if pid, err := Holder(path); err != nil || pid != 0 {
			t.Errorf("held by %d, %v", pid, err)
		}
	}
	for name, test := range map[string]func(t *testing.T, path string){
		"nothing": taken,
		"a server's": func(t *testing.T, path string) {
			l, err := at("unix:" + path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			refused(t, path, "already running there, pid ")
			var running *RunningError
			if _, err := at("unix:" + path); !errors.As(err, &running) || running.PID != os.Getpid() {
				t.Errorf("%v", err)
			}
		},
		"another program's": func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			refused(t, path, "already running there")
			var running *RunningError
			if _, err := at("unix:" + path); runtime.GOOS == "linux" && (!errors.As(err, &running) || running.PID != os.Getpid()) {
				t.Errorf("%v", err)
			}
		},
		"a stale one": func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			l.Close()
			taken(t, path)
		},
		"a stale lock": func(t *testing.T, path string) {
			if err := os.WriteFile(path+".lock", []byte("99999999\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			taken(t, path)
		},
		"a file": func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, path, "no socket")
		},
		"a folder": func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			refused(t, path, "no socket")
		},
		"a link to a live one": func(t *testing.T, path string) {
			l, err := at("unix:" + path + "2")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := os.Symlink(path+"2", path); err != nil {
				t.Fatal(err)
			}
			refused(t, path, "no socket")
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, filepath.Join(shortFolder(t), "s")) })
	}
}

// TestStartsAtOnce: of many, one gets the socket, and the others say so, whether a stale
// one was there or not.
func TestStartsAtOnce(t *testing.T) {
	for round := range 20 {
		path := filepath.Join(shortFolder(t), "s")
		if round%2 == 1 {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			l.Close()
		}
		var all sync.WaitGroup
		got := make(chan net.Listener, 8)
		for range 8 {
			all.Go(func() {
				l, err := at("unix:" + path)
				var running *RunningError
				if err == nil {
					got <- l
				} else if !errors.As(err, &running) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(got) != 1 {
			t.Fatalf("%d have it", len(got))
		}
		l := <-got
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
	}
}

// TestCloseKeepsOthers: a socket that has taken the place of ours is not removed.
func TestCloseKeepsOthers(t *testing.T) {
	path := filepath.Join(shortFolder(t), "s")
	l, err := at("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestOwnerConnects: who may connect is served.
func TestOwnerConnects(t *testing.T) {
	path := filepath.Join(shortFolder(t), "s")
	l, err := at("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, "hello")
		c.Close()
	}()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if data, err := io.ReadAll(c); err != nil || string(data) != "hello" {
		t.Errorf("%q %v", data, err)
	}
	p, err := peerOf(c.(*net.UnixConn))
	if runtime.GOOS == "linux" && (err != nil || p.uid != os.Getuid() || p.pid != os.Getpid()) {
		t.Errorf("%+v %v", p, err)
	}
}
