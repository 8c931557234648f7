package listen

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// DefaultAddress is where a server listens where nothing is said.
const DefaultAddress = "127.0.0.1:8484"

// Kind is how an address is reached.
type Kind string

// The kinds of addresses, as they begin.
const (
	Unix      Kind = "unix" // a path
	TCP       Kind = "tcp"  // HOST:PORT
	Inherited Kind = "fd"   // the name of sockets that are open already; "": all
)

// Address is where to listen.
type Address struct {
	Kind  Kind
	Value string
}

// Parse reads unix:PATH, tcp:HOST:PORT, HOST:PORT or fd:NAME. "unix:" is DefaultSocket.
func Parse(s string) (Address, error) {
	kind, value, _ := strings.Cut(s, ":")
	a := Address{Kind(kind), value}
	switch a.Kind {
	case Unix:
		if value == "" {
			path, err := DefaultSocket()
			if err != nil {
				return Address{}, fmt.Errorf("%s: %w", s, err)
			}
			a.Value = path
		}
		if n := len(a.Value); n > maxSocketPath {
			return Address{}, fmt.Errorf("%s: the path has %d bytes: want 1 to %d", s, n, maxSocketPath)
		}
		return a, nil
	case Inherited:
		return a, nil
	case TCP:
	default:
		a = Address{TCP, s}
	}
	if _, _, err := net.SplitHostPort(a.Value); err != nil {
		return Address{}, fmt.Errorf("%q: want HOST:PORT, unix:PATH or fd:NAME", s)
	}
	return a, nil
}

// String is the address as Parse reads it.
func (a Address) String() string {
	if a.Kind == TCP {
		return a.Value
	}
	return string(a.Kind) + ":" + a.Value
}

// Private reports whether only this machine's programs can connect: at a Unix socket, or
// at the loopback. Of inherited sockets that is not known before they are there: see
// PrivateAddr.
func (a Address) Private() bool {
	if a.Kind != TCP {
		return true
	}
	host, _, err := net.SplitHostPort(a.Value)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// PrivateAddr is Private of a socket that listens.
func PrivateAddr(a net.Addr) bool {
	return a.Network() == "unix" || Address{TCP, a.String()}.Private()
}

// Listen opens the address: one listener, or as many as have an inherited name.
func (a Address) Listen() (list []net.Listener, err error) {
	var l net.Listener
	switch a.Kind {
	case Inherited:
		list, err = inherited(a.Value)
	case Unix:
		l, err = listenUnix(a.Value)
	default:
		l, err = net.Listen("tcp", a.Value)
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", a, err)
	}
	if l != nil {
		list = []net.Listener{l}
	}
	return list, nil
}

// DefaultSocket is the path of the user's own socket: $XDG_RUNTIME_DIR/windrow/sock,
// or else windrow/sock in the user's cache folder.
func DefaultSocket() (string, error) {
	folder := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(folder) {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no place for a socket: %w", err)
		}
		folder = cache
	}
	return filepath.Join(folder, "windrow", "sock"), nil
}
