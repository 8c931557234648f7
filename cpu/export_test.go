package cpu

import "windrow/cpu/kernels"

// RoundsActivations reports whether a kernel table has an arithmetic that rounds
// activations, so that its default differs from exact.
func RoundsActivations(table string) bool {
	k, err := kernels.ByName(table)
	return err == nil && k.Rounds()
}

// Spoil changes the kernels that a backend runs.
func Spoil(b *Backend, spoil func(k *kernels.Table)) {
	k := *b.k
	spoil(&k)
	b.k = &k
}
