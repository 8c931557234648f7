package driver

import "unsafe"

// Reaches reports whether kernels of this context's device can read and write the
// memory of another one's; a driver that cannot be asked says no.
func (c *Context) Reaches(peer *Context) bool {
	if c.api.canReach.address == 0 || c.api.enablePeer.address == 0 {
		return false
	}
	var can int32
	err := c.api.call(&c.api.canReach, uintptr(unsafe.Pointer(&can)), c.device, peer.device)
	return err == nil && can != 0
}

// Reach lets kernels of this context, which must be entered, read and write all memory
// of another one's, what is allocated later too.
func (c *Context) Reach(peer *Context) error {
	err := c.api.call(&c.api.enablePeer, peer.handle, 0)
	if hasCode(err, codePeerEnabled) { // by another user of the two contexts, which are the process's
		return nil
	}
	return c.wrap(err)
}
