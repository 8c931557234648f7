//go:build !linux

package cpu

// adviseHugePages leaves the size of pages to the system.
func adviseHugePages([]byte) {}

// newSlab makes memory of zeros.
func newSlab(bytes int) (mapping, memory []byte, err error) {
	memory = make([]byte, bytes)
	return memory, memory, nil
}

// freeSlab leaves it to the garbage collector.
func freeSlab([]byte) {}
