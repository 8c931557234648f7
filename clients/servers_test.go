package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"windrow/models/tinygsm"
)

// key is what the locked server wants.
const key = "a-key-for-tests"

// servers are the base URLs of what the tests talk to, without /v1: see docs/clients.md.
var servers = map[string]string{}

// bench is what TestMain starts and ends.
type bench struct {
	folder    string
	processes []*exec.Cmd
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	b := new(bench)
	defer b.end()
	if err := b.start(); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		return 1
	}
	return m.Run()
}

func (b *bench) start() (err error) {
	if b.folder, err = os.MkdirTemp("", "windrow-clients"); err != nil {
		return err
	}
	binary, err := b.build()
	if err != nil {
		return err
	}
	model, err := b.toolModel()
	if err != nil {
		return err
	}
	for name, args := range map[string][]string{
		"binary": nil,
		"tools":  {"--model", model, "--model-name", "tiny-tools", "--any-model"},
		"locked": {"--api-key", key},
	} {
		if servers[name], err = b.serve(binary, args...); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if servers["scripted"], err = serveScripts(); err != nil {
		return err
	}
	servers["spoil"], err = serveSpoiled()
	return err
}

// build makes the program, or takes the one that WINDROW_BINARY names.
func (b *bench) build() (string, error) {
	if given := os.Getenv("WINDROW_BINARY"); given != "" {
		return filepath.Abs(given)
	}
	binary := filepath.Join(b.folder, "windrow")
	c := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./cmd/windrow")
	c.Dir, c.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return binary, nil
}

// toolModel writes the embedded model with a template that has tools and thinking, and
// with room for the prompts of agents. What it says there is of no use; that it is the
// same each time is.
func (b *bench) toolModel() (string, error) {
	folder := filepath.Join(b.folder, "tiny-tools")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return "", err
	}
	for name, data := range tinygsm.Files() {
		var err error
		switch name {
		case "config.json":
			data, err = with(data, "max_position_embeddings", 65536)
		case "tokenizer_config.json":
			var template string
			if template, err = toolTemplate(); err == nil {
				data, err = with(data, "chat_template", template)
			}
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), data, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	return folder, nil
}

// toolTemplate is Qwen3's.
func toolTemplate() (string, error) {
	data, err := os.ReadFile("../tokenizer/testdata/qwen3/tokenizer_config.json")
	if err != nil {
		return "", err
	}
	var config struct {
		ChatTemplate string `json:"chat_template"`
	}
	err = json.Unmarshal(data, &config)
	return config.ChatTemplate, err
}

// with is a JSON object with a member replaced.
func with(data []byte, key string, value any) ([]byte, error) {
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	object[key] = value
	return json.Marshal(object)
}

// serve starts the program at a free port and waits until it is ready.
func (b *bench) serve(binary string, args ...string) (string, error) {
	c := exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	c.Env = append(os.Environ(), "XDG_CACHE_HOME="+b.folder)
	stderr, err := c.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := c.Start(); err != nil {
		return "", err
	}
	b.processes = append(b.processes, c)
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("it did not say where it listens: %s", line)
		}
		if _, at, ok := strings.Cut(strings.TrimSpace(line), " listens at "); ok {
			go io.Copy(io.Discard, lines)
			return at, ready(at)
		}
	}
}

// ready waits for /ready.
func ready(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/ready", nil)
		if err != nil {
			return err
		}
		w, err := http.DefaultClient.Do(r)
		if err == nil {
			w.Body.Close()
			if w.StatusCode == http.StatusOK {
				return nil
			}
		}
		if ctx.Err() != nil {
			return errors.New("it does not get ready")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (b *bench) end() {
	for _, c := range b.processes {
		c.Process.Kill()
		c.Wait()
	}
	os.RemoveAll(b.folder)
}
