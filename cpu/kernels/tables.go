package kernels

import (
	"fmt"
	"slices"
)

// namedTable is a kernel table of this architecture, whether the machine runs it
// or not.
type namedTable struct {
	name string
	// lacks says what this machine lacks for the table; "" where it runs it.
	lacks func() string
	make  func() *Table
}

// tables are the kernel tables of this architecture, the reference first and the
// best last.
func tables() []namedTable {
	return append([]namedTable{{"go", func() string { return "" }, Reference}}, architectureTables...)
}

// ByName returns the named table; "" means the best one that this machine runs. The
// error names what the machine lacks for it, or the tables that there are.
func ByName(name string) (*Table, error) {
	all := tables()
	slices.Reverse(all)
	refused := ""
	for _, t := range all {
		if name != "" && t.name != name {
			continue
		}
		if refused = t.lacks(); refused == "" {
			return t.make(), nil
		}
	}
	if refused != "" {
		return nil, fmt.Errorf("cpu kernels %q: this machine lacks %s; it runs %v", name, refused, Names())
	}
	return nil, fmt.Errorf("cpu kernels %q: this machine runs %v", name, Names())
}

// Names lists the kernel tables that this machine can run, sorted.
func Names() (names []string) {
	for _, t := range tables() {
		if t.lacks() == "" {
			names = append(names, t.name)
		}
	}
	slices.Sort(names)
	return names
}

// Feature is an instruction set, by the name that Linux gives it, and whether the
// machine has it.
type Feature struct {
	Name string
	Has  bool
}
