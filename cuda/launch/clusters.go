package launch

import "windrow/cuda/driver"

// activeClusters is how many clusters of so many blocks are at work at once, as the driver says; 0
// where it does not.
func (d *Device) activeClusters(k kernel, blocks, threads int) int {
	if n, ok := d.clusters[k]; ok {
		return n
	}
	f, err := d.function(k)
	if err != nil || f == nil { // or kernels are only gathered
		return 0
	}
	n, _ := f.ActiveClusters(driver.LaunchConfig{Grid: [3]uint32{uint32(blocks), 1, 1}, Block: uint32(threads), Shared: uint32(k.shared)})
	if d.clusters == nil {
		d.clusters = map[kernel]int{}
	}
	d.clusters[k] = n
	return n
}

// mostClusters is how many clusters are at work at once of a kernel of which a multiprocessor has
// room for one block. Where the driver does not say some multiprocessors are left idle.
func (d *Device) mostClusters(k kernel, blocks, threads int) int {
	if blocks == 1 {
		return d.Info.SMs
	}
	if n := d.activeClusters(k, blocks, threads); n > 0 {
		return n
	}
	return max(1, d.Info.SMs/blocks*7/8)
}
