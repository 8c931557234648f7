package listen

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerOf is who made a connection.
func peerOf(c *net.UnixConn) (p peer, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return p, err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); inner == nil {
			p = peer{uid: int(cred.Uid), pid: int(cred.Pid)}
		}
	})
	if err == nil {
		err = inner
	}
	return p, err
}
