package fetch

import "golang.org/x/sys/unix"

// bootName names the time since the system started: what was written since then is in
// its memory, even where it is not on the disk yet.
func bootName() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
