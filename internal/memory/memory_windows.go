package memory

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// status is MEMORYSTATUSEX of the Windows API.
type status struct {
	length, load           uint32
	physical, free         uint64
	pageFile, freePageFile uint64
	virtual, freeVirtual   uint64
	freeExtended           uint64
}

var globalMemoryStatus = windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

func total() int64 {
	s := status{}
	s.length = uint32(unsafe.Sizeof(s))
	if ok, _, _ := globalMemoryStatus.Call(uintptr(unsafe.Pointer(&s))); ok == 0 {
		return 0
	}
	return int64(s.physical)
}
