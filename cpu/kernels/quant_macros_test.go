package kernels

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sameOffsets compares the offsets that a header defines with those of a struct.
func sameOffsets(t *testing.T, header string, want map[string]uintptr) {
	t.Helper()
	text, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#define ([A-Z]+) +(\d+)$`).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = m[2]
	}
	for name, offset := range want {
		if found[name] != strconv.Itoa(int(offset)) {
			t.Errorf("%s: %s is %q, in the struct %d", header, name, found[name], offset)
		}
	}
}

// The instructions that the NEON headers give as numbers are those of their
// comments, in the words of an assembler that knows them.
func TestNeonEncodings(t *testing.T) {
	assembler, err := exec.LookPath("llvm-mc")
	if err != nil {
		t.Skip("no llvm-mc")
	}
	define := regexp.MustCompile(`(?m)^#define (\w+)\(([\w, ]+)\) WORD \$\(0x([0-9A-F]{8})((?: \| \(\w\)(?:<<\d+)?)+)\) // ([^;\n]+)`)
	field := regexp.MustCompile(`\((\w)\)(?:<<(\d+))?`)
	register := regexp.MustCompile(`\b([VS])([mnd])\b`)
	numbers := map[string]uint32{"m": 11, "n": 22, "d": 29}
	var names, lines []string
	var words []uint32
	for _, file := range []string{"macros_neon_arm64.h", "quant_macros_arm64.h"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := define.FindAllStringSubmatch(string(text), -1)
		if n := strings.Count(string(text), "WORD"); len(found) != n {
			t.Errorf("%s: %d of %d definitions have the form of the others", file, len(found), n)
		}
		for _, m := range found {
			var word uint32
			fmt.Sscanf(m[3], "%x", &word)
			for _, f := range field.FindAllStringSubmatch(m[4], -1) {
				shift := 0
				fmt.Sscan(f[2], &shift)
				word |= numbers[f[1]] << shift
			}
			names, words = append(names, m[1]), append(words, word)
			lines = append(lines, register.ReplaceAllStringFunc(m[5], func(r string) string { return fmt.Sprint(r[:1], numbers[r[1:]]) }))
		}
	}
	cmd := exec.Command(assembler, "-triple=aarch64", "-mattr=+dotprod,+i8mm", "-show-encoding")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	encodings := regexp.MustCompile(`encoding: \[0x(..),0x(..),0x(..),0x(..)\]`).FindAllStringSubmatch(string(out), -1)
	if len(encodings) != len(words) {
		t.Fatalf("%d encodings of %d: %s", len(encodings), len(words), out)
	}
	for i, e := range encodings {
		if want := e[4] + e[3] + e[2] + e[1]; fmt.Sprintf("%08x", words[i]) != want {
			t.Errorf("%s is %08x, want %s: %s", names[i], words[i], want, lines[i])
		}
	}
}
