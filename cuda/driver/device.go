package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrNoDevice says that the driver sees no GPU, or not the one asked for.
var ErrNoDevice = errors.New("cuda: no GPU")

// DeviceInfo describes a GPU.
type DeviceInfo struct {
	Ordinal        int // number among the devices that the driver shows
	Name           string
	Major, Minor   int    // compute capability
	SMs            int    // streaming multiprocessors
	Memory         uint64 // bytes
	L2             int    // bytes
	SharedPerBlock int    // most bytes of shared memory that a block may ask for
	DriverVersion  string // newest CUDA of the driver, such as "12.4"

	ClockKHz, MemoryClockKHz int
	MemoryBusBits            int

	// ReadOnlyRegister: memory that the process may only read can be registered.
	ReadOnlyRegister bool
}

// Numbers of CUdevice_attribute.
const (
	attributeClock            = 13
	attributeSMs              = 16
	attributeMemoryClock      = 36
	attributeMemoryBus        = 37
	attributeL2               = 38
	attributeMajor            = 75
	attributeMinor            = 76
	attributeSharedPerBlock   = 97
	attributeReadOnlyRegister = 113
)

// Devices lists the GPUs; none is [ErrNoDevice].
func (d *Driver) Devices() ([]DeviceInfo, error) {
	if d.empty {
		return nil, ErrNoDevice
	}
	var count int32
	if err := d.api.call(&d.api.deviceCount, uintptr(unsafe.Pointer(&count))); err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	if count == 0 {
		return nil, ErrNoDevice
	}
	list := make([]DeviceInfo, count)
	for i := range list {
		info, _, err := d.describe(i)
		if err != nil {
			return nil, fmt.Errorf("cuda: device %d: %w", i, err)
		}
		list[i] = info
	}
	return list, nil
}

// describe also returns the device's handle.
func (d *Driver) describe(ordinal int) (DeviceInfo, uintptr, error) {
	a := d.api
	info := DeviceInfo{Ordinal: ordinal, DriverVersion: d.Version()}
	var device int32
	if err := a.call(&a.device, uintptr(unsafe.Pointer(&device)), uintptr(ordinal)); err != nil {
		return info, 0, err
	}
	handle := uintptr(uint32(device))
	name := make([]byte, 256)
	if err := a.call(&a.deviceName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)-1), handle); err != nil {
		return info, 0, err
	}
	info.Name = cString(&name[0])
	if err := a.call(&a.deviceMemory, uintptr(unsafe.Pointer(&info.Memory)), handle); err != nil {
		return info, 0, err
	}
	for _, q := range []struct {
		attribute uintptr
		value     *int
	}{
		{attributeClock, &info.ClockKHz}, {attributeSMs, &info.SMs},
		{attributeMemoryClock, &info.MemoryClockKHz}, {attributeMemoryBus, &info.MemoryBusBits},
		{attributeL2, &info.L2}, {attributeSharedPerBlock, &info.SharedPerBlock},
		{attributeMajor, &info.Major}, {attributeMinor, &info.Minor},
	} {
		value, err := d.attribute(q.attribute, handle)
		if err != nil {
			return info, 0, err
		}
		*q.value = value
	}
	value, err := d.attribute(attributeReadOnlyRegister, handle)
	info.ReadOnlyRegister = err == nil && value != 0
	return info, handle, nil
}

func (d *Driver) attribute(number, device uintptr) (int, error) {
	var value int32
	err := d.api.call(&d.api.deviceAttribute, uintptr(unsafe.Pointer(&value)), number, device)
	return int(value), err
}
