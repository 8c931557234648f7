package fakeobjc

import "golang.org/x/sys/unix"

// threadID tells the operating system's threads apart.
func threadID() int { return unix.Gettid() }
