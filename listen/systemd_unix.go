//go:build unix

package listen

import (
	"os"

	"github.com/coreos/go-systemd/v22/activation"
)

// handedOver are the sockets that systemd opened, by LISTEN_FDS, LISTEN_PID and
// LISTEN_FDNAMES, which programs that we start do not get.
func handedOver() []*os.File { return activation.Files(true) }
