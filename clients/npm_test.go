package clients

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// npmTests runs npm's clients by node --test, and returns what they wrote about
// details; nil where there is no node, which CI must have.
func npmTests(t *testing.T) []byte {
	if _, err := exec.LookPath("node"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no node")
		}
		t.Log("left out: clients of npm: there is no node")
		return nil
	}
	if _, err := os.Stat("npm/node_modules/openai"); err != nil {
		c := exec.Command("npm", "ci")
		c.Dir = "npm"
		if out, err := c.CombinedOutput(); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("npm ci: %v: %s", err, out)
			}
			t.Logf("left out: clients of npm: npm ci: %v: %s", err, out)
			return nil
		}
	}
	addresses, err := json.Marshal(servers)
	if err != nil {
		t.Fatal(err)
	}
	cells := filepath.Join(t.TempDir(), "cells.json")
	c := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=tap")
	c.Dir, c.Env = "npm", append(os.Environ(), "WINDROW_SERVERS="+string(addresses), "WINDROW_CELLS="+cells, "WINDROW_KEY="+key)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("node --test: %v:\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("%s", out)
	}
	data, err := os.ReadFile(cells)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// npmDetails adds what npm's clients found to the table and returns their names; nil
// where they cannot run here.
func npmDetails(t *testing.T, found *cells) (names []string) {
	t.Run("npm", func(t *testing.T) {
		data := npmTests(t)
		if data == nil {
			return
		}
		var made struct {
			Names []string
			Marks map[string]map[int]string
		}
		if err := json.Unmarshal(data, &made); err != nil {
			t.Fatal(err)
		}
		names = made.Names
		for _, name := range names {
			found.marks[name] = made.Marks[name]
		}
	})
	return names
}
