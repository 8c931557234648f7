//go:build unix

package hub

import "syscall"

// notDir is the error of a path that leads through a file.
const notDir = syscall.ENOTDIR
