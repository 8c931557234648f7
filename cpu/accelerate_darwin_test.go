package cpu

import (
	"testing"
	"time"

	"windrow/backend"
	"windrow/conformance/backendtest"
)

// TestAccelerate passes the real one through the suite, and says whether it is faster
// here. Not yet run on hardware.
func TestAccelerate(t *testing.T) {
	k := bestTable(t)
	start := time.Now()
	b, err := newBackend(k, true, 4, &blasChooser{open: openAccelerate, faster: measured}, "1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("chosen in %v: %s", time.Since(start), b.Features().Description)
	b.Close()
	product, err := openAccelerate()
	if err != nil {
		t.Fatal(err)
	}
	if !agrees(product) {
		t.Fatal("wrong products")
	}
	backendtest.Run(t, "../model/testdata/golden", func(t *testing.T) backend.Backend {
		return withBLAS(t, k, true, 0, product)
	})
}
