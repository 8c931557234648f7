package synthetic

import "syscall"

// adviseHugePages asks for 2 MiB pages: 3.4 GB of random weights then take
// 1,700 page faults and not 830,000.
func adviseHugePages(memory []byte) { _ = syscall.Madvise(memory, syscall.MADV_HUGEPAGE) }
