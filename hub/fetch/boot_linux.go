package fetch

import "os"

// bootName names the time since the system started: what was written since then is in
// its memory, even where it is not on the disk yet.
func bootName() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(id)
}
