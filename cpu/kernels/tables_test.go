package kernels

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
)

// A table that the machine runs is made by its name, and every other is refused
// with what is lacking.
func TestTables(t *testing.T) {
	best := ""
	for _, table := range tables() {
		k, err := ByName(table.name)
		lacking := table.lacks()
		if lacking == "" {
			best = table.name
			if err != nil || k.Name != table.name {
				t.Errorf("%s: %v, %v", table.name, k, err)
			}
		} else if want := fmt.Sprintf("cpu kernels %q: this machine lacks %s; it runs %v", table.name, lacking, Names()); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", table.name, err, want)
		}
		if slices.Contains(Names(), table.name) != (lacking == "") {
			t.Errorf("%s lacks %q; the machine runs %v", table.name, lacking, Names())
		}
	}
	if k, err := ByName(""); err != nil || k.Name != best {
		t.Errorf("the best table is %v, %v; want %s", k, err, best)
	}
	var names []string
	for _, table := range architectureTables {
		names = append(names, table.name)
	}
	if slices.Sort(names); !slices.Equal(names, slices.Sorted(slices.Values(instructionSets[runtime.GOARCH]))) {
		t.Errorf("the tables are %v, the instruction sets of file names %v", names, instructionSets[runtime.GOARCH])
	}
	_, err := ByName("sse")
	if want := fmt.Sprintf("cpu kernels %q: this machine runs %v", "sse", Names()); err == nil || err.Error() != want {
		t.Errorf("no table: %v, want %s", err, want)
	}
}
