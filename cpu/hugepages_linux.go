package cpu

import (
	"fmt"
	"syscall"
	"unsafe"
)

// adviseHugePages asks for 2 MiB pages under the whole ones within memory: a
// one-row step at context 2048 of a 0.6B model touches 57,000 pages of 4 KiB
// of keys and values, each once. Advice that fails changes nothing else.
func adviseHugePages(memory []byte) {
	start := toHugePage(memory)
	if end := (len(memory) - start) &^ (hugePage - 1); start < len(memory) && end > 0 {
		_ = syscall.Madvise(memory[start:start+end], syscall.MADV_HUGEPAGE)
	}
}

// toHugePage is how far the next huge page is from the beginning of memory.
func toHugePage(memory []byte) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(memory))) & (hugePage - 1))
}

// newSlab maps memory of zeros that begins with a huge page. It is none of Go's, which
// would make zero again what it had before, and give it back to the system much later.
func newSlab(bytes int) (mapping, memory []byte, err error) {
	mapping, err = syscall.Mmap(-1, 0, bytes+hugePage, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("mapping memory: %w", err)
	}
	start := toHugePage(mapping)
	end := start + bytes
	if over := bytes % hugePage; over > 0 { // a huge page would take more than is counted
		end -= over
	} else { // so that mappings side by side become one for the system, which has room for 65,530
		end = len(mapping)
	}
	_ = syscall.Madvise(mapping[:end], syscall.MADV_HUGEPAGE)
	return mapping, mapping[start : start+bytes : start+bytes], nil
}

// freeSlab unmaps what newSlab mapped.
func freeSlab(mapping []byte) { _ = syscall.Munmap(mapping) }
