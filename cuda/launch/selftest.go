package launch

// SelfTest checks a kernel on test vectors, mostly against float64. Run may end in a
// panic with its error; the device is of no use after a failure.
type SelfTest struct {
	Name string
	Run  func(d *Device) error
}

// SelfTests are those of all kernels.
var SelfTests []SelfTest

// registerSelfTest is called by the init of each file of launchers.
func registerSelfTest(name string, run func(d *Device) error) {
	SelfTests = append(SelfTests, SelfTest{name, run})
}
