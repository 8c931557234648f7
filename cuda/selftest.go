package cuda

import "fmt"

// selfTest holds a kernel against float64 on test vectors.
type selfTest struct {
	name string
	run  func(d *device) error
}

var selfTests []selfTest

// registerSelfTest is called by the init of each file of launchers.
func registerSelfTest(name string, run func(d *device) error) {
	selfTests = append(selfTests, selfTest{name, run})
}

// runSelfTests runs all of them and reports each.
func (d *device) runSelfTests(report func(name string, err error)) {
	for _, t := range selfTests {
		report(t.name, func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("%v", r)
				}
			}()
			return t.run(d)
		}())
	}
}
