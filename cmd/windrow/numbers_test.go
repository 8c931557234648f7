package main

import (
	"math"
	"testing"
)

func TestFinite(t *testing.T) {
	if finite(2) != 2 || finite(math.NaN()) != -1 || finite(math.Inf(1)) != -1 {
		t.Error("NaN and infinities must become -1: JSON has neither")
	}
}
