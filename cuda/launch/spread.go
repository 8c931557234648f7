package launch

// each is how many of so many blocks a multiprocessor has that has most.
func (d *Device) each(blocks int) int { return Ceil(blocks, max(1, d.Info.SMs)) }

// sharedOf is the bytes of shared memory that a block may ask for where each of them are on a multiprocessor.
func (d *Device) sharedOf(each int) int {
	return (d.Info.SharedPerBlock+reservedShared)/each - reservedShared
}

// spread is a kernel whose blocks no multiprocessor gets more of than it has to, where that is fewer than most:
// they begin as the kernel before ends, and those multiprocessors that it leaves first would be given as many
// as they have room for, others none. So a block asks for more shared memory than it has use for; static is
// what the kernel has besides, in bytes.
func (d *Device) spread(k kernel, static, blocks, most int) kernel {
	if each := d.each(blocks); each < most {
		k.shared = max(k.shared, d.sharedOf(each)-static)
	}
	return k
}
