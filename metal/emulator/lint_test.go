package emulator

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// lintFaults is what Lint must say of each fault of testdata/badlint.metal.
var lintFaults = map[int]string{
	1: "cannot initialize", 2: "no matching function", 3: "no matching function", 4: "double", 5: "implicit", 6: "ambiguous",
	7: "half4", 8: "ambiguous", 9: "read-only", 10: "element type", 11: "goto", 12: "wrong number of vector components",
	13: "INFINITY: fast math", 14: "isnan: fast math", 15: "deleted", 16: "memory_order_release", 17: "threadgroup",
	18: "constant", 19: "element type", 20: "threadgroup variable outside", 21: "function constants", 22: "threadgroup variable outside",
	23: "initial value", 24: "undeclared", 25: "new", 26: "float4", 27: "different sizes", 28: "const", 29: "no matching function",
	30: "used twice", 31: "no attribute", 32: "number of components", 33: "0 to 30", 34: "not emulated", 35: "buffer is in device or constant memory",
	36: "thread_elements: which lane",
}

// TestLint wants each fault found, with its line, and the source without them taken.
func TestLint(t *testing.T) {
	Available(t)
	source, err := os.ReadFile("testdata/badlint.metal")
	if err != nil {
		t.Fatal(err)
	}
	lint := func(fault int) error {
		return Lint(fmt.Sprintf("#define FAULT %d\n#line 1 \"badlint.metal\"\n%s", fault, source))
	}
	if err := lint(0); err != nil {
		t.Fatalf("no fault: %v", err)
	}
	for fault := 1; fault <= len(lintFaults); fault++ {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			t.Parallel()
			err := lint(fault)
			if err == nil || !strings.Contains(err.Error(), lintFaults[fault]) || !strings.Contains(err.Error(), "badlint.metal:") {
				t.Errorf("%v, want a line with %q", err, lintFaults[fault])
			}
		})
	}
}

// TestCompileErrors wants errors that name the line of the source.
func TestCompileErrors(t *testing.T) {
	Available(t)
	const head = "#include <metal_stdlib>\nusing namespace metal;\n"
	for _, c := range []struct{ source, want string }{
		{head + "kernel void k(device float* x [[buffer(0)]]) {\n  x[0] = y;\n}\n", "source:4:"},
		{"#line 7 \"a.metal\"\nint x\n" + head, "no kernel"},
		{head + "kernel void k(device float* x [[buffer(0)]]) {\n", "does not end"},
		{head + "kernel void k(device float* x [[buffer(0)]] {}\n", "source:3"},
		{"#include \"other.h\"\n", "no such file"},
		{"#include <vector>\n", "no such file"},
		{"#error stop\n", "source:1:"},
		{"", "no kernel"},
		{head + "template <typename T> kernel void k(device T* x [[buffer(0)]]) { x[0] = T(1); }\n" +
			"template [[host_name(\"k\")]] kernel void k<float>(device float*);\ntemplate [[host_name(\"k\")]] kernel void k<half>(device half*);\n", `host name "k"`},
		{head + "template <typename T> kernel void k(device T* x [[buffer(0)]]) { x[0] = T(1); }\ntemplate kernel void k<float>(device float*);\n", "no host_name"},
		{head + "namespace n {\nkernel void k(device float* x [[buffer(0)]]) {}\n}\n", "source:4"},
	} {
		_, err := Compile(c.source, Plain)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.source, err, c.want)
		}
	}
}
