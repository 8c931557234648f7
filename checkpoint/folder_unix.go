//go:build unix

package checkpoint

import "syscall"

// openWithoutWaiting makes the opening of a pipe end at once, should one have
// taken a regular file's place; for a regular file it has no effect.
const openWithoutWaiting = syscall.O_NONBLOCK
