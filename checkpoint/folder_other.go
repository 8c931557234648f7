//go:build !unix

package checkpoint

// openWithoutWaiting is nothing where folders hold no pipes.
const openWithoutWaiting = 0
