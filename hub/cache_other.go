//go:build !unix

package hub

import "io/fs"

// notDir is the error of a path that leads through a file: elsewhere that is missing.
var notDir = fs.ErrNotExist
