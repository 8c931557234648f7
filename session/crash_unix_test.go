//go:build unix

package session

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// crashVariable makes TestCrash of another process the one that is killed: it has the
// folder, the version to save, the step before which to die (which of its kind), and
// whether there are states.
const crashVariable = "WINDROW_SESSION_CRASH"

// version is what a session has in its n-th state: it goes on from the one before, and
// at times parts from it.
func version(n int) []int32 {
	tokens := ids(60+pageTokens*(n%40), 1)
	for i := range tokens {
		if i > 40 && n%7 == 0 {
			tokens[i] += int32(1 + n)
		}
	}
	return tokens
}

// crash saves a version, and kills its process at a step of that.
func crash(t *testing.T, dir string, n int, kind string, at int, states bool) {
	o := options()
	o.States = states
	steps := map[string]int{}
	o.step = func(what string) {
		if steps[what]++; what == kind && steps[what] == at {
			fmt.Println("dies before", what)
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	s := open(t, dir, o)
	if _, _, err := save(t, s, Session{Owner: "o", Name: "x", Tokens: version(n)}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("saved after", steps)
}

// TestCrash kills a process at a step of a save, each write, sync and renaming among
// them, and looks at what is left: the session of before or the new one, the new one
// where it was said to be saved, with its own bytes, without a word of complaint; and
// another session as it was.
func TestCrash(t *testing.T) {
	if work := strings.Fields(os.Getenv(crashVariable)); len(work) == 5 {
		n, _ := strconv.Atoi(work[1])
		at, _ := strconv.Atoi(work[3])
		crash(t, work[0], n, strings.ReplaceAll(work[2], "_", " "), at, work[4] == "true")
		return
	}
	for _, states := range []bool{false, true} {
		t.Run(fmt.Sprintf("states %t", states), func(t *testing.T) { testCrash(t, states) })
	}
}

func testCrash(t *testing.T, states bool) {
	rounds := 49
	if os.Getenv("CI") != "" && !testing.Short() {
		rounds = 200
	}
	dir := t.TempDir()
	other := ids(100, 9)
	o := options()
	o.States = states
	s := open(t, dir, o)
	for name, tokens := range map[string][]int32{"x": version(0), "y": other} {
		if _, _, err := save(t, s, Session{Owner: "o", Name: name, Tokens: tokens}); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	r := rand.New(rand.NewPCG(1, 1))
	kinds := []string{"create", "write", "half written", "sync", "rename", "sync folder", "replace"}
	most := []int{4, 4, 4, 3, 3, 2, 1}
	if states {
		most = []int{6, 6, 6, 5, 5, 2, 1}
	}
	there, killed := 0, map[string]int{}
	for n := 1; n <= rounds; n++ {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrash$")
		kind := kinds[n%len(kinds)]
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s %d %t", crashVariable, dir, n, strings.ReplaceAll(kind, " ", "_"), 1+r.IntN(most[n%len(most)]), states))
		out, err := cmd.Output()
		step := ""
		said := strings.Contains(string(out), "saved after")
		if _, rest, ok := strings.Cut(string(out), "dies before "); ok {
			step, _, _ = strings.Cut(rest, "\n")
			killed[step]++
		} else if !said || err != nil {
			t.Fatalf("version %d: %v\n%s", n, err, out)
		}
		o.Note = func(line string) { t.Errorf("version %d, killed before %q: %s", n, step, line) }
		s := open(t, dir, o)
		info, err := s.Get("o", "x")
		if err != nil {
			t.Fatalf("version %d, killed before %q: %v", n, step, err)
		}
		m := s.sessions[key{"test", "o", "x"}]
		switch is := func(v int) bool { return slices.Equal(m.Tokens, version(v)) }; {
		case is(n):
			there = n
		case is(there) && !said && step != "replace":
		default:
			t.Fatalf("version %d, said to be saved %t, killed before %q: %d tokens of neither that nor %d", n, said, step, info.Tokens, there)
		}
		for _, tokens := range [][]int32{version(there), other} {
			if got, err := load(t, s, "", tokens, 0); got != len(tokens) || err != nil {
				t.Errorf("version %d: %d of %d tokens, %v", n, got, len(tokens), err)
			}
		}
		s.Close()
	}
	t.Logf("killed before %v; the last that is there is %d of %d", killed, there, rounds)
	if len(killed) != len(kinds) || there < rounds/2 {
		t.Errorf("too little is shown: %v", killed)
	}
}
