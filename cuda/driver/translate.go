package driver

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// errNoLinker is a driver whose functions that translate alone were not found.
var errNoLinker = errors.New("cuda: the driver has no linker")

// linkPTX is CU_JIT_INPUT_PTX.
const linkPTX = 1

// Translate makes of PTX what the device runs, for LoadCode: several at a time where
// several goroutines ask, and nobody waits who uses the context meanwhile. The driver's
// own cache has no part in it.
func (c *Context) Translate(ptx []byte) (code []byte, err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	a := c.api
	if a.linkCreate.address == 0 || a.linkAdd.address == 0 || a.linkComplete.address == 0 || a.linkDestroy.address == 0 {
		return nil, errNoLinker
	}
	image := append(bytes.Clone(ptx), 0)
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&image[0])
	var link, size uintptr
	var made *byte // memory of the driver
	if err := a.call(&a.linkCreate, 0, 0, 0, uintptr(unsafe.Pointer(&link))); err != nil {
		return nil, c.wrap(err)
	}
	defer func() { err = errors.Join(err, a.call(&a.linkDestroy, link)) }()
	if err := a.call(&a.linkAdd, link, linkPTX, uintptr(unsafe.Pointer(&image[0])), uintptr(len(image)), 0, 0, 0, 0); err != nil {
		return nil, c.wrap(err)
	}
	if err := a.call(&a.linkComplete, link, uintptr(unsafe.Pointer(&made)), uintptr(unsafe.Pointer(&size))); err != nil {
		return nil, c.wrap(err)
	}
	if made == nil || size == 0 || size > mostCode {
		return nil, fmt.Errorf("cuda: %d bytes of code", size)
	}
	// The link owns it until it is destroyed.
	return bytes.Clone(unsafe.Slice(made, size)), nil
}

// mostCode bounds what one kernel can take.
const mostCode = 64 << 20
