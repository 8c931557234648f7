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
	if IsAlone(t) {
		return true
	}
	text, passed := RunAlone(t, env...)
	switch {
	case !passed:
		t.Errorf("%s: failed\n%s", strings.Join(env, " "), text)
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

// IsAlone reports whether this is a process that a test was started in by itself.
func IsAlone(t *testing.T) bool { return os.Getenv(alone) == t.Name() }

// RunAlone runs a test in a process of its own, with more in its environment: text is what it says there.
func RunAlone(t *testing.T, env ...string) (text string, passed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), append(env, alone+"="+t.Name())...)
	out, err := cmd.CombinedOutput()
	text = string(out)
	if err != nil {
		text += err.Error()
	}
	return text, err == nil && strings.Contains(text, "--- PASS: "+t.Name())
}
