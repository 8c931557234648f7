package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
)

// ErrNotInherited is the error of a name that no open socket has.
var ErrNotInherited = errors.New("no such socket was handed over: want a start by a socket unit of systemd or launchd")

// inherited makes listeners of the sockets that were open when the program started,
// under a name or, for "", all of them. Each is handed out once. They are not removed
// when they are closed, and who may connect is up to who made them.
func inherited(name string) (list []net.Listener, err error) {
	handed.once.Do(func() { handed.files = handedOver() })
	handed.mutex.Lock()
	defer handed.mutex.Unlock()
	var rest []*os.File
	for _, f := range handed.files {
		if name != "" && f.Name() != name || err != nil {
			rest = append(rest, f)
			continue
		}
		var l net.Listener
		if l, err = net.FileListener(f); err != nil {
			err = fmt.Errorf("socket %q: %w", f.Name(), err)
			continue
		}
		f.Close() // the listener has a copy
		list = append(list, l)
	}
	handed.files = rest
	if err == nil && len(list) == 0 {
		list, err = fromLaunchd(name)
	}
	if err != nil {
		for _, l := range list {
			l.Close()
		}
		return nil, err
	}
	return list, nil
}

// handed are the sockets that systemd handed over and nobody took yet.
var handed struct {
	once  sync.Once
	mutex sync.Mutex
	files []*os.File
}
