package main

import (
	"fmt"
	"math"
)

// counted is a number of things: "1 argument", "2 arguments".
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// finite replaces what JSON cannot hold: NaN and infinities become -1.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return -1
	}
	return v
}
