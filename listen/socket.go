package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"windrow/filelock"
)

// maxSocketPath is the longest path of a socket that every system takes: macOS has 104
// bytes, with the zero at the end.
const maxSocketPath = 103

// RunningError is a socket that another process listens at.
type RunningError struct{ PID int } // 0: unknown

func (e *RunningError) Error() string {
	if e.PID == 0 {
		return "a server is already running there"
	}
	return fmt.Sprintf("a server is already running there, pid %d", e.PID)
}

// listenUnix makes a socket that its owner alone can connect to: the folder is made for
// the owner alone, the socket is, and who connects is asked for. A lock beside it keeps
// two starts at once from taking each other's.
func listenUnix(path string) (net.Listener, error) {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(lockPath(path), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l, err := takeSocket(path, lock)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return l, nil
}

func lockPath(socket string) string { return socket + ".lock" }

// makeFolder makes the folder of a socket. One that is called as the default socket's is
// ours, and is kept from others.
func makeFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	path, err := DefaultSocket()
	if err != nil || filepath.Dir(path) != folder {
		return nil
	}
	info, err := os.Stat(folder)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = os.Chmod(folder, 0o700)
	}
	return err
}

func takeSocket(path string, lock *os.File) (net.Listener, error) {
	if err := filelock.TryLock(lock); errors.Is(err, filelock.ErrHeld) {
		return nil, &RunningError{readPID(lock)}
	} else if err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it may be another's by then
	made, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err == nil {
		err = writePID(lock)
	}
	if err != nil {
		l.Close()
		os.Remove(path)
		return nil, err
	}
	return &socket{UnixListener: l.(*net.UnixListener), path: path, made: made, lock: lock}, nil
}

// removeStale removes a socket that a server left behind: one that refuses. One that
// answers, or that may, and any other file stays.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return errors.New("there is a file, which is no socket")
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		defer c.Close()
		p, err := peerOf(c.(*net.UnixConn))
		if err != nil {
			p.pid = 0
		}
		return &RunningError{p.pid}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("there is a socket, which may be in use: %w", err)
	}
	return os.Remove(path)
}

// writePID notes in the lock whose it is.
func writePID(lock *os.File) error {
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// readPID is the process that holds a lock, 0 where that is not known.
func readPID(lock *os.File) int {
	var b [32]byte
	n, _ := lock.ReadAt(b[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}

// Holder is the process that listens at a socket, or is about to; 0: none that holds
// the socket's lock.
func Holder(path string) (pid int, err error) {
	lock, err := os.OpenFile(lockPath(path), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	err = filelock.TryLock(lock)
	if errors.Is(err, filelock.ErrHeld) {
		return readPID(lock), nil
	}
	return 0, err
}

// socket is a listener that holds the lock of its socket, and lets in nobody but the
// owner and root.
type socket struct {
	*net.UnixListener
	path string
	made os.FileInfo
	lock *os.File
}

// Accept implements net.Listener.
func (l *socket) Accept() (net.Conn, error) {
	for {
		c, err := l.UnixListener.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if p, err := peerOf(c); errors.Is(err, errors.ErrUnsupported) || err == nil && (p.uid == os.Getuid() || p.uid == 0) {
			return c, nil
		}
		c.Close()
	}
}

// Close implements net.Listener; the socket is removed, unless another one has taken its
// place.
func (l *socket) Close() error {
	err := l.UnixListener.Close()
	if now, statErr := os.Lstat(l.path); statErr == nil && os.SameFile(now, l.made) {
		os.Remove(l.path)
	}
	l.lock.Close() // the file stays: another process may be opening it
	return err
}

// peer is the process at the other end of a connection.
type peer struct{ uid, pid int }
