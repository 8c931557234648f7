package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"windrow/filelock"
)

// DefaultAddress is where a server listens where nothing is said.
const DefaultAddress = "127.0.0.1:8484"

// maxSocketPath is the longest path of a socket that every system takes.
const maxSocketPath = 103

const unixPrefix = "unix:"

// Private reports whether only this machine's programs can reach an address: a Unix
// socket's, or one of the loopback.
func Private(address string) bool {
	if strings.HasPrefix(address, unixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Listen listens at HOST:PORT or unix:PATH. A socket that a server left behind is
// taken over; one in use, and any other file, is not.
func Listen(address string) (net.Listener, error) {
	path, ok := strings.CutPrefix(address, unixPrefix)
	if !ok {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("listen at %q: want HOST:PORT or unix:PATH", address)
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen at %s: %w", address, err)
		}
		return l, nil
	}
	l, err := listenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", address, err)
	}
	return l, nil
}

// listenUnix makes a socket that its owner alone can connect to. A lock beside it
// keeps two starts at once from taking each other's.
func listenUnix(path string) (net.Listener, error) {
	if path == "" || len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path has %d bytes: want 1 to %d", len(path), maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l, err := takeSocket(path, lock)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &unixListener{Listener: l, lock: lock}, nil
}

func takeSocket(path string, lock *os.File) (net.Listener, error) {
	if err := filelock.TryLock(lock); errors.Is(err, filelock.ErrHeld) {
		return nil, errors.New("a server is already running there")
	} else if err != nil {
		return nil, err
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSocket == 0:
		return nil, errors.New("there is a file, which is no socket")
	default:
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			c.Close()
			return nil, errors.New("a program is listening there")
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// unixListener holds the lock of its socket.
type unixListener struct {
	net.Listener
	lock *os.File
}

// Close implements net.Listener; the socket is removed.
func (l *unixListener) Close() error {
	err := l.Listener.Close()
	l.lock.Close() // the file stays: another process may be opening it
	return err
}

// limited is a listener of at most so many connections at a time: others wait to be
// accepted.
type limited struct {
	net.Listener
	room   chan struct{} // holds one for each connection
	closed chan struct{}
	once   sync.Once
}

func limit(l net.Listener, room chan struct{}) net.Listener {
	return &limited{Listener: l, room: room, closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &counted{Conn: c, room: l.room}, nil
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// counted is a connection that gives its place back.
type counted struct {
	net.Conn
	room chan struct{}
	once sync.Once
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.once.Do(func() { <-c.room })
	return c.Conn.Close()
}
