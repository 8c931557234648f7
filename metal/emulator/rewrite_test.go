package emulator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// statement wraps what stands in a kernel's body.
func statement(s string) string {
	return "template <typename T> kernel void k(device T* x [[buffer(0)]]) {" + s + "}\n" + `template [[host_name("a")]] kernel void k<float>(device float*);`
}

func TestRewrite(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"float v = 1.0 + 2. + .5 + 1e-3 + 1.5f + 2.h + 0x1p3 + 7;", "float v = 1.0f + 2.f + .5f + 1e-3f + 1.5f + 2.h + 0x1p3 + 7;"},
		{"v = float4(1, w.x);", "v = ::msl::mk<float4>(1, w.x);"},
		{"v = metal::vec<T, 4>(w);", "v = ::msl::mk<metal::vec<T, 4>>(w);"},
		{"v = vec<bfloat, 2>(float2(a, b));", "v = ::msl::mk<vec<bfloat, 2>>(::msl::mk<float2>(a, b));"},
		{"return T(0);", "return ::msl::mk<T>(0);"},
		{"x[i] = T(a) * T(b) + half(c);", "x[i] = ::msl::mk<T>(a) * ::msl::mk<T>(b) + ::msl::mk<half>(c);"},
		{"T (&a)[8] = b;", "T (&a)[8] = b;"},
		{"thread T (*p)[8];", "thread T (*p)[8];"},
		{"v = (float4)w * 2;", "v = ::msl::cast<float4>{}->*w * 2;"},
		{"v = (T)x[0] + (vec<T, 4>)-w;", "v = ::msl::cast<T>{}->*x[0] + ::msl::cast<vec<T, 4>>{}->*-w;"},
		{"n = sizeof(T) * 2;", "n = sizeof(T) * 2;"},
		{"v = static_cast<T>(w);", "v = ::msl::mk<T>(w);"},
		{"p = static_cast<device T*>(q);", "p = static_cast<device T*>(q);"},
		{"using quad = vec<T, 4>; v = quad(w);", "using quad = vec<T, 4>; v = ::msl::mk<quad>(w);"},
		{"typedef float4 row; v = row(w);", "typedef float4 row; v = ::msl::mk<row>(w);"},
		{"threadgroup float s[4];", `typedef float s__t[4]; threadgroup s__t &s = ::msl::variable<s__t>(0, "s");`},
		{"threadgroup vec<T, 4> s[N * 2], u[8][3], v;", `typedef vec<T, 4> s__t[N * 2],  u__t[8][3],  v__t; threadgroup s__t &s = ::msl::variable<s__t>(0, "s"); threadgroup u__t &u = ::msl::variable<u__t>(1, "u"); threadgroup v__t &v = ::msl::variable<v__t>(2, "v");`},
		{"alignas(16) threadgroup T s[4];", `typedef T s__t[4]; threadgroup s__t &s = ::msl::variable<s__t>(0, "s", 16);`},
		{"threadgroup T* p = s + 1;", "threadgroup T* p = s + 1;"},
		{"threadgroup const T *p, *q;", "threadgroup const T *p, *q;"},
		{"for (;;) { threadgroup T* p = s; }", "for (;;) { threadgroup T* p = s; }"},
		{"[[unroll]] for (;;) {}", " for (;;) {}"},
		{"f((threadgroup T*)s, (device const float4*)x);", "f((threadgroup T*)s, (device const float4*)x);"},
		{"a = b[c[0]]; d = e < f; g = h > (i);", "a = b[c[0]]; d = e < f; g = h > (i);"},
	} {
		got, err := rewrite(statement(c.in), false)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if !strings.Contains(got, "{"+c.want+"}") {
			t.Errorf("%s becomes\n%s\nwant\n%s", c.in, strings.Split(got, "\n")[0], c.want)
		}
	}
}

// TestLinesStay wants as many lines before each statement as there were.
func TestLinesStay(t *testing.T) {
	in := "template <typename T>\nkernel void k(\n  device T* x\n  [[buffer(\n0)]]) {\n  threadgroup T\n    s[3],\n    u[4];\n  here();\n}\n" +
		"template [[host_name(\"a\")]]\nkernel void k<float>(\n  device float*);\nvoid there();\n"
	out, err := rewrite(in, false)
	if err != nil {
		t.Fatal(err)
	}
	line := func(text, what string) int { return strings.Count(text[:strings.Index(text, what)], "\n") }
	for _, what := range []string{"here();", "void there"} {
		if line(in, what) != line(out, what) {
			t.Errorf("%s is on line %d, was on %d", what, line(out, what), line(in, what))
		}
	}
}

// FuzzRewrite wants an error or a text of any input, and nothing that does not end.
func FuzzRewrite(f *testing.F) {
	files, err := filepath.Glob("testdata/*.metal")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
		for n := 1; n < len(data); n = n*3/2 + 1 {
			f.Add(string(data[:n])) // what ends in the middle of something
		}
	}
	for _, s := range []string{
		"kernel", "kernel void", "kernel void k(", "kernel void k()", "kernel void k() {", "[[", "]]", "template", "template [[host_name(", "threadgroup",
		"{threadgroup", "{threadgroup x", "{threadgroup ,;", "{threadgroup [];", "{alignas(", "{alignas(16) threadgroup", "vec<", "vec<(", "(vec<a>)", "using x =", "typedef ;",
		"kernel void k(device float* x [[buffer", "kernel void k(device float* x [[buffer(", "template kernel void k<", "'", "\"\\", "# 1 \"", "1e+", ".", "static_cast<", "T(",
	} {
		f.Add(s)
		f.Add(statement(s))
	}
	f.Fuzz(func(t *testing.T, source string) {
		for _, lint := range []bool{false, true} {
			if text, err := rewrite(source, lint); err == nil && text == "" {
				t.Error("neither a text nor an error")
			}
		}
	})
}
