//go:build !unix

package hub

import "io/fs"

// freed is what the removal of a file frees.
func freed(info fs.FileInfo) int64 { return info.Size() }
