package driver

import (
	"fmt"
	"unsafe"
)

// PageSize is what address and length of memory for [Device.NewBufferNoCopy]
// are multiples of: the page of Apple's processors.
const PageSize = 16 << 10

// bufferOptions are MTLResourceStorageModeShared and the default tracking of
// hazards. Apple promises that dispatches see what those before them wrote for
// tracked resources only; tracking is by encoder, so that it costs a forward,
// which has one, next to nothing.
const bufferOptions = 0

// Buffer is device memory that the host shares. What the host writes before a
// commit the device sees; what the device writes the host sees after Wait.
type Buffer struct {
	resource
	memory []byte
}

// NewBuffer reserves memory with undefined contents.
func (d *Device) NewBuffer(bytes int) (*Buffer, error) {
	if err := d.checkLength(bytes); err != nil {
		return nil, err
	}
	id := d.rt.send(d.id, selNewBuffer, uintptr(bytes), bufferOptions)
	if id == 0 {
		return nil, fmt.Errorf("metal: no memory for a buffer of %d bytes on %s", bytes, d.info.Name)
	}
	memory := unsafe.Slice((*byte)(pointer(d.rt.send(id, selContents))), bytes)
	return &Buffer{resource{rt: d.rt, id: id}, memory}, nil
}

// NewBufferNoCopy makes a buffer of memory that stays mapped and in place until
// Release: address and length are multiples of [PageSize].
func (d *Device) NewBufferNoCopy(memory []byte) (*Buffer, error) {
	if err := d.checkLength(len(memory)); err != nil {
		return nil, err
	}
	address := unsafe.Pointer(&memory[0])
	if uintptr(address)%PageSize != 0 || len(memory)%PageSize != 0 {
		return nil, fmt.Errorf("metal: memory of %d bytes at %p is not whole pages of %d bytes", len(memory), address, PageSize)
	}
	id := d.rt.send(d.id, selNewBufferNoCopy, uintptr(address), uintptr(len(memory)), bufferOptions, 0)
	if id == 0 {
		return nil, fmt.Errorf("metal: %s takes no buffer of %d mapped bytes", d.info.Name, len(memory))
	}
	return &Buffer{resource{rt: d.rt, id: id}, memory}, nil
}

func (d *Device) checkLength(bytes int) error {
	if bytes <= 0 || bytes > d.info.MaxBufferLength {
		return fmt.Errorf("metal: buffer of %d bytes; %s takes 1 to %d", bytes, d.info.Name, d.info.MaxBufferLength)
	}
	return nil
}

// Bytes is the buffer's memory, until Release.
func (b *Buffer) Bytes() []byte { return b.memory }

// Length is the buffer's size in bytes.
func (b *Buffer) Length() int { return len(b.memory) }

// Release gives the memory up. It must not be used any more; what has been
// encoded with it still may run.
func (b *Buffer) Release() {
	b.memory = nil
	b.resource.Release()
}
