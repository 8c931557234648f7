package testhelp

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// alone holds the name of the test that a process was started for.
const alone = "WINDROW_TEST_ALONE"

// Alone runs the rest of a test in a process of its own, with more in its environment,
// and reports whether this is that process. What the test logs there is logged here.
func Alone(t *testing.T, env ...string) bool {
	t.Helper()
	if os.Getenv(alone) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), append(env, alone+"="+t.Name())...)
	out, err := cmd.CombinedOutput()
	text := string(out)
	switch {
	case err != nil || !strings.Contains(text, "--- PASS: "+t.Name()):
		t.Errorf("%s: %v\n%s", strings.Join(env, " "), err, text)
	case testing.Verbose():
		for line := range strings.Lines(text) {
			// What looks like a result of a test would count as one.
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
				t.Log(line)
			}
		}
	}
	return false
}
