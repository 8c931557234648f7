package fetch

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"windrow/hub"
)

// The variables by which a test of this package is a program that pulls.
const (
	childEndpoint = "WINDROW_TEST_PULL_ENDPOINT"
	childCache    = "WINDROW_TEST_PULL_CACHE"
)

func TestMain(m *testing.M) {
	endpoint := os.Getenv(childEndpoint)
	if endpoint == "" {
		os.Exit(m.Run())
	}
	o := Options{Endpoint: endpoint, Wait: -1, pieceSize: 64 << 10, Limit: killLimit, times: times{tick: 5 * time.Millisecond}}
	_, err := Pull(context.Background(), &hub.Cache{Root: os.Getenv(childCache)}, hub.Name{Repo: "me/tiny", Revision: "main"}, o)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// killLimit is the rate of a pull that is killed, in bytes a second: it lasts for a while.
const killLimit = 16 << 20

// TestKill: a pull that is killed at any moment leaves a cache that works and the old
// revision in it; what was recorded is not fetched again, and in the end all is right.
func TestKill(t *testing.T) {
	kills, size := 200, 64<<20
	if testing.Short() || os.Getenv("CI") == "" {
		kills, size = 20, 8<<20
		t.Log("left out: 180 of 200 kills: without CI set")
	}
	s := newScene(t, false)
	old := tiny(random(1, 50_000))
	repo := s.hub.Add("me/tiny", commitA, old)
	s.mustPull("hf:me/tiny", old)
	now := tiny(random(2, size))
	repo.Commits[commitB], repo.Refs["main"] = now, commitB
	s.hub.Forget()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	journalFile := filepath.Join(s.cache.Parts(), string(digestOf(now["model.safetensors"]))+".journal")
	var kept int64
	killed, ended := 0, false
	for ; killed < kills && !ended; killed++ {
		child := exec.Command(self, "-test.run=^$")
		child.Env = append(os.Environ(), childEndpoint+"="+s.hub.URL, childCache+"="+s.cache.Root)
		var out bytes.Buffer
		child.Stdout = &out
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(10+rand.IntN(60))*time.Millisecond, func() { child.Process.Kill() })
		err := child.Wait()
		timer.Stop()
		if ended = err == nil; !ended && child.ProcessState.ExitCode() > 0 {
			t.Fatalf("after %d kills: %s", killed, out.String())
		}
		list, err := s.cache.List()
		if err != nil || len(list) == 0 || len(list) > 2 {
			t.Fatalf("list: %+v, %v", list, err)
		}
		if _, err := s.cache.Find(hub.Name{Repo: "me/tiny", Revision: "main"}); err != nil {
			t.Fatalf("the model is gone: %v", err)
		}
		was, err := os.ReadFile(filepath.Join(s.cache.Snapshot("me/tiny", commitA), "model.safetensors"))
		if err != nil || !bytes.Equal(was, old["model.safetensors"]) {
			t.Fatalf("the old revision: %v", err)
		}
		if commit, err := s.cache.Ref("me/tiny", "main"); err != nil || commit == commitB && !ended {
			if _, err := s.cache.Find(hub.Name{Repo: "me/tiny", Revision: commitB}); err != nil {
				t.Fatalf("main leads to %s: %v", commit, err)
			}
		}
		if j := readJournalFile(journalFile); j != nil {
			if j.have() < kept {
				t.Errorf("kill %d: %d bytes are kept, and there were %d", killed, j.have(), kept)
			}
			kept = j.have()
		}
	}
	s.mustPull("hf:me/tiny", now)
	// In flight are a run of each connection at most: its pieces, and what the sockets hold.
	if sent, most := s.hub.Sent(), int64(size)+10_000+int64(killed)*(4<<20); sent > most {
		t.Errorf("%d bytes were sent of %d with %d kills: want at most %d", sent, size, killed, most)
	} else {
		t.Logf("%d kills, %d bytes kept at the last, %.2f times the model's bytes sent", killed, kept, float64(sent)/float64(size))
	}
}

// TestKilledAtTheEnd: a pull that was killed when a file was in its place, and what the journal
// says of it was not removed yet, leaves nothing for good: the next one finds all there, and
// removes it.
func TestKilledAtTheEnd(t *testing.T) {
	s := newScene(t, false)
	files := tiny(random(1, 50_000))
	s.hub.Add("me/tiny", commitA, files)
	s.mustPull("hf:me/tiny", files)
	journal := filepath.Join(s.cache.Parts(), string(digestOf(files["model.safetensors"]))+".journal")
	for _, again := range []bool{true, false} { // all verified; and a file that has to be fetched
		if err := os.WriteFile(journal, journalHeader{size: 50_000, pieceSize: 4096}.bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		if !again {
			os.Remove(filepath.Join(s.cache.Snapshot("me/tiny", commitA), "README.md"))
		}
		s.mustPull("hf:me/tiny", files) // which looks at what is left
	}
}
