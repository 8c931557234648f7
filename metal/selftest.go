package metal

// selfTest compares kernels with float64 on test vectors.
type selfTest struct {
	name string
	run  func(d *device) error
}

var selfTests []selfTest

// registerSelfTest is called by the init of each file of launchers.
func registerSelfTest(name string, run func(d *device) error) {
	selfTests = append(selfTests, selfTest{name, run})
}
