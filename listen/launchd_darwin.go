package listen

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// fromLaunchd takes the sockets that a launchd job has under a key of its Sockets. Not
// yet run on hardware.
func fromLaunchd(name string) (list []net.Listener, err error) {
	if name == "" {
		return nil, fmt.Errorf("%w; launchd's have names: want fd:NAME, a key of the job's Sockets", ErrNotInherited)
	}
	system, err := purego.Dlopen("/usr/lib/libSystem.B.dylib", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	// int launch_activate_socket(const char *name, int **fds, size_t *count); **fds is
	// from malloc.
	var activate func(name string, fds **int32, count *uintptr) int32
	var free func(unsafe.Pointer)
	for symbol, f := range map[string]any{"launch_activate_socket": &activate, "free": &free} {
		address, err := purego.Dlsym(system, symbol)
		if err != nil {
			return nil, err
		}
		purego.RegisterFunc(f, address)
	}
	var fds *int32
	var count uintptr
	if errno := activate(name, &fds, &count); errno != 0 {
		// ENOENT: no such key; ESRCH: not started by launchd; EALREADY: taken before.
		return nil, fmt.Errorf("%w (launchd: %w)", ErrNotInherited, syscall.Errno(errno))
	}
	defer free(unsafe.Pointer(fds))
	for _, fd := range unsafe.Slice(fds, count) {
		syscall.CloseOnExec(int(fd))
		f := os.NewFile(uintptr(fd), name)
		l, listenErr := net.FileListener(f)
		f.Close()
		if listenErr != nil {
			err = listenErr
			continue
		}
		list = append(list, l)
	}
	if err != nil {
		for _, l := range list {
			l.Close()
		}
		return nil, err
	}
	return list, nil
}
