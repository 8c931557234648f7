//go:build !(darwin || linux)

package listen

import (
	"errors"
	"net"
)

// peerOf cannot be asked here: the folder and the socket's mode are the guard.
func peerOf(*net.UnixConn) (peer, error) { return peer{}, errors.ErrUnsupported }
