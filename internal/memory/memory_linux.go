package memory

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func total() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	n := int64(info.Totalram) * int64(info.Unit)
	if most := groupLimit(); most > 0 {
		n = min(n, most)
	}
	return n
}

// groupLimit is what control groups (version 2) allow the process, as it sees them: in
// a container, and in a unit of systemd with a limit of its own. 0: nothing is said.
func groupLimit() (least int64) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	_, path, ok := strings.Cut(strings.TrimSpace(string(own)), "0::")
	if !ok {
		return 0
	}
	path, _, _ = strings.Cut(path, "\n")
	for {
		if data, err := os.ReadFile("/sys/fs/cgroup" + path + "/memory.max"); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return least
		}
		path = path[:i]
	}
}
