package cpu

import "windrow/cpu/kernels"

// RoundsActivations reports whether a kernel table has an arithmetic that rounds
// activations, so that its default differs from exact.
func RoundsActivations(table string) bool {
	k, err := kernels.ByName(table)
	return err == nil && k.Rounds()
}
