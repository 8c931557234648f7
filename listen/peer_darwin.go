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
		var cred *unix.Xucred
		if cred, inner = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); inner != nil {
			return
		}
		p.uid = int(cred.Uid)
		p.pid, _ = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if err == nil {
		err = inner
	}
	return p, err
}
