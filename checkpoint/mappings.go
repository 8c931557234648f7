package checkpoint

// Mappings are the memory regions, whole pages of a file or of nothing, in
// which a source's tensors lie: a backend that shares memory with the CPU can
// use them in place. Tensors that were decoded, or that are part of the
// program, lie in none.
func Mappings(src Source) [][]byte {
	if m, ok := src.(interface{ Mappings() [][]byte }); ok {
		return m.Mappings()
	}
	return nil
}

// Mappings are the files that hold the weights, each mapped into memory as a
// whole, until Close; none where the model was read from memory.
func (c *Checkpoint) Mappings() (list [][]byte) {
	for _, m := range c.mapped {
		list = append(list, m)
	}
	return list
}
