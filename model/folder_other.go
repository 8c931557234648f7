//go:build !unix

package model

// openWithoutWaiting is nothing where folders hold no pipes.
const openWithoutWaiting = 0
