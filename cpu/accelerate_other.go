//go:build !darwin

package cpu

func openAccelerate() (sgemm, error) { return nil, errNoAccelerate }
