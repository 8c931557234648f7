package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"windrow/architecture"
	"windrow/checkpoint"
	"windrow/hub/fetch"
	"windrow/hub/hubtest"
	"windrow/models/tinygsm"
)

// TestPull: a model is fetched, and runs; a second pull says that it is there.
func TestPull(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	h := hubtest.New(t, false)
	commit := hubtest.Commit("1234")
	h.Add("me/tiny", commit, tinygsm.Files())
	h.Add("me/gemma", commit, map[string][]byte{"config.json": []byte(`{"model_type": "gemma3", "architectures": ["Gemma3ForCausalLM"]}`), "model.safetensors": make([]byte, 5000)})
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("HF_ENDPOINT", h.URL)
	t.Setenv("HF_TOKEN", "hf_secretsecretsecret")
	t.Setenv("HF_HUB_OFFLINE", "")
	windrow := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = run(append([]string{"windrow"}, args...), strings.NewReader(""), &out, &errs)
		if all := out.String() + errs.String(); strings.Contains(all, "secretsecret") || strings.Contains(all, "SECRETSIGNATURE") {
			t.Errorf("%q shows a secret:\n%s", args, all)
		}
		return code, out.String(), errs.String()
	}
	if code, out, errs := windrow("pull", "hf:me/tiny", "--dry-run"); code != 0 || !strings.Contains(out, "model.safetensors") && !strings.Contains(out, "model-00001") || !strings.Contains(out, "missing") {
		t.Errorf("--dry-run: %d %s%s", code, out, errs)
	}
	if code, out, errs := windrow("pull", "hf:me/tiny", "--dry-run", "--limit", "1M"); code != 0 || !strings.Contains(out, "s at 1 MiB/s\n") {
		t.Errorf("--dry-run --limit: %d %s%s", code, out, errs)
	}
	code, out, errs := windrow("pull", "hf:me/tiny")
	if code != 0 || !strings.Contains(out, commit) || !strings.Contains(errs, "are to come") {
		t.Fatalf("pull: %d %s%s", code, out, errs)
	}
	if code, out, _ = windrow("generate", "--server", "off", "--model", "hf:me/tiny", "--max-tokens", "4", "There are 5 rows of 9 chairs. How many chairs are there?"); code != 0 || out == "" {
		t.Errorf("generate: %d %s", code, out)
	}
	if code, _, errs := windrow("pull", "hf:me/tiny"); code != 0 || !strings.Contains(errs, "all is there") {
		t.Errorf("again: %d %s", code, errs)
	}
	if code, out, _ := windrow("list"); code != 0 || !strings.Contains(out, "verified, "+h.URL) {
		t.Errorf("list: %d %s", code, out)
	}
	if code, out, _ := windrow("verify", "--all"); code != 0 || !strings.Contains(out, "all right") {
		t.Errorf("verify: %d %s", code, out)
	}
	code, _, errs = windrow("pull", "hf:me/gemma")
	if code != 1 || !strings.Contains(errs, "Windrow does not run gemma3; it runs "+architecture.Names(" and ", func(a *architecture.Architecture) string { return a.Name })) || strings.Count(errs, "\n") != 1 {
		t.Errorf("gemma: %d %s", code, errs)
	}
	var llama, page bytes.Buffer
	fields := []checkpoint.GGUFField{{Key: "general.quantization_version", Value: uint32(2)}, {Key: "general.name", Value: "of theirs"}, {Key: "general.architecture", Value: "lla\x1bma"}}
	if err := checkpoint.WriteGGUF(&llama, append(fields, checkpoint.GGUFField{Key: "x", Value: make([]uint8, 100_000)}), nil); err != nil {
		t.Fatal(err)
	}
	page.WriteString("<html>log in")
	h.Add("me/llama", commit, map[string][]byte{"llama-Q4_K_M.gguf": llama.Bytes()})
	h.Add("me/page", commit, map[string][]byte{"m.gguf": page.Bytes()})
	for name, want := range map[string]string{
		"hf:me/llama": `llama-Q4_K_M.gguf: Windrow does not run lla\x1bma; it runs qwen3, qwen2, `,
		"hf:me/page":  `m.gguf: it is no GGUF file: it begins with "<htm"`,
	} {
		h.Forget()
		if code, _, errs := windrow("pull", name); code != 1 || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 || h.Sent() > fetch.GGUFHead {
			t.Errorf("%s: %d %s, %d bytes sent", name, code, errs, h.Sent())
		}
	}
	code, out, _ = windrow("pull", "hf:me/tiny", "--json")
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var e fetch.Event
		if err := d.Decode(&e); err == io.EOF {
			break
		} else if err != nil || e.Event == "" {
			t.Fatalf("--json: %d %v %s", code, err, out)
		}
	}
	for _, c := range []struct {
		code int
		args string
	}{
		{2, "pull"}, {2, "pull hf:me/.."}, {2, "pull hf:me/tiny --limit x"}, {2, "pull hf:me/tiny --limit 1"}, {2, "pull hf:me/tiny --connections 0"}, {2, "pull hf:me/tiny --wait -1s"},
		{2, "pull hf:me/tiny --peers x"}, {2, "pull hf:me/tiny --peers a:1,,b:1"}, {2, "pull hf:me/tiny --peers a:1 --from a:1"}, {2, "pull ./x --peers a:1"}, {2, "pull hf:me/tiny --peers a:1" + strings.Repeat(",a:1", 40)},
		{1, "pull hf:me/nobody"}, {1, "pull hf:me/nobody --offline"}, {2, "pull a b"}, {2, "pull hf:me/tiny@.."}, {2, "pull hf:me/ti\x1bny"}, {1, "pull ./nowhere"}, {1, "pull http://127.0.0.1:1/x.gguf --sha256 abc"}, {2, "pull hf:" + strings.Repeat("x", 300)},
	} {
		code, out, errs := windrow(strings.Fields(c.args)...)
		if code != c.code || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "windrow: pull: ") {
			t.Errorf("%.60s: exit code %d, want %d, and one line: %s%s", c.args, code, c.code, out, errs)
		}
	}
	// A pull's events: the plan, how far it is, a line for each file, and the end.
	if code, _, errs := windrow("rm", "hf:me/tiny"); code != 0 {
		t.Fatal(errs)
	}
	code, out, errs = windrow("pull", "hf:me/tiny", "--json")
	var kinds []string
	verified := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var e fetch.Event
		if err := d.Decode(&e); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("--json: %v %s", err, out)
		}
		kinds = append(kinds, e.Event)
		switch e.Event {
		case "plan":
			if e.Commit != commit || e.Plan.Missing != e.Plan.Bytes || e.Plan.Bytes == 0 || len(e.Plan.Files) != len(tinygsm.Files()) {
				t.Errorf("%+v", e.Plan)
			}
		case "verified":
			verified[e.File] = true
		case "done":
			if e.Result.Path == "" || e.Result.Fetched != e.Result.Bytes || e.Result.Files != len(tinygsm.Files()) {
				t.Errorf("%+v", e.Result)
			}
		}
	}
	if n := len(kinds); code != 0 || errs != "" || n < 4 || kinds[0] != "plan" || kinds[n-1] != "done" || !slices.Contains(kinds, "progress") || len(verified) != len(tinygsm.Files()) {
		t.Errorf("--json: %d %q %s", code, kinds, errs)
	}
	for args, want := range map[string]string{
		"pull hf:me/nobody --offline":  "windrow: pull: hf:me/nobody is not in the cache " + os.Getenv("HF_HUB_CACHE") + ", and without --offline or HF_HUB_OFFLINE it would be fetched\n",
		"rm hf:me/nobody":              "windrow: rm: hf:me/nobody is not in the cache " + os.Getenv("HF_HUB_CACHE") + "\n",
		"generate --model hf:me/no hi": "windrow: generate: hf:me/no is not in the cache " + os.Getenv("HF_HUB_CACHE") + ": windrow pull hf:me/no fetches it\n",
	} {
		asked := len(h.Requests())
		if code, _, errs := windrow(strings.Fields(args)...); code != 1 || errs != want || len(h.Requests()) != asked {
			t.Errorf("%s: %d %s(want %s), %d requests", args, code, errs, want, len(h.Requests())-asked)
		}
	}
	t.Setenv("HF_ENDPOINT", "hub.example.org")
	if code, _, errs := windrow("pull", "hf:me/tiny"); code != 1 || errs != "windrow: pull: HF_ENDPOINT: endpoint \"hub.example.org\": want https://HOST\n" {
		t.Errorf("HF_ENDPOINT: %d %s", code, errs)
	}
	t.Setenv("HF_ENDPOINT", h.URL)
	// Peers are several flags, or one with commas. That none answers costs nothing.
	if code, _, errs := windrow("rm", "hf:me/tiny"); code != 0 {
		t.Fatal(errs)
	}
	if code, _, errs := windrow("pull", "hf:me/tiny", "--peers", "127.0.0.1:1,127.0.0.1:2", "--peers", "127.0.0.1:3"); code != 0 {
		t.Errorf("peers that are not there: %d %s", code, errs)
	}
	code, _, errs = windrow("pull", "hf:me/tiny", "--peers", "127.0.0.1:1"+strings.Repeat(",127.0.0.1:1", 40))
	if code != 2 || !strings.Contains(errs, "41 of them") {
		t.Errorf("many peers: %d %s", code, errs)
	}
	// What verify finds wrong is fetched again.
	snapshot := filepath.Join(os.Getenv("HF_HUB_CACHE"), "models--me--tiny", "snapshots", commit)
	blob, err := filepath.EvalSymlinks(filepath.Join(snapshot, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(blob)
	data[len(data)/2] ^= 1
	if err := os.WriteFile(blob, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := windrow("verify", "hf:me/tiny"); code != 1 || !strings.Contains(out, "config.json has the hash") || !strings.Contains(errs, "1 file is wrong: to fetch again: windrow pull hf:me/tiny\n") {
		t.Errorf("verify of a spoilt file: %d %s%s", code, out, errs)
	}
	if code, _, errs := windrow("pull", "hf:me/tiny"); code != 0 {
		t.Errorf("pull of a spoilt file: %s", errs)
	}
	if code, _, errs := windrow("verify", "hf:me/tiny"); code != 0 {
		t.Errorf("after it was fetched again: %s", errs)
	}
	// Nobody but its owner has a local one: verify names the file.
	own := filepath.Join(t.TempDir(), "own.gguf")
	if err := os.WriteFile(own, []byte("GGUF"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errs = windrow("pull", own)
	if blob, err = filepath.EvalSymlinks(strings.TrimSpace(out)); code != 0 || err != nil {
		t.Fatalf("%d %s%s %v", code, out, errs, err)
	}
	if err := os.WriteFile(blob, []byte("GGUG"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := windrow("verify", "hf:local/own"); code != 1 || !strings.HasSuffix(errs, "to fetch again: windrow pull "+own+"\n") {
		t.Errorf("verify of a local file: %d %s", code, errs)
	}
}

// FuzzGGUFArchitecture: of no bytes whatever does a look at a GGUF file's beginning fail, and
// what it takes for the architecture stands there.
func FuzzGGUFArchitecture(f *testing.F) {
	var b bytes.Buffer
	fields := []checkpoint.GGUFField{{Key: "a", Value: true}, {Key: "b", Value: 1.5}, {Key: "general.architecture", Value: "qwen3"}, {Key: "c", Value: []string{"x"}}}
	if err := checkpoint.WriteGGUF(&b, fields, nil); err != nil {
		f.Fatal(err)
	}
	if got := ggufArchitecture(b.Bytes()); got != "qwen3" {
		f.Fatalf("%q", got)
	}
	for n := range b.Len() {
		if got := ggufArchitecture(b.Bytes()[:n]); got != "" && got != "qwen3" {
			f.Fatalf("the first %d bytes: %q", n, got)
		}
	}
	f.Add(b.Bytes())
	f.Add([]byte("GGUF"))
	f.Add(append(b.Bytes()[:24:24], "\xff\xff\xff\xff\xff\xff\xff\xffx"...))
	f.Fuzz(func(t *testing.T, head []byte) {
		if name := ggufArchitecture(head); !bytes.Contains(head, []byte(name)) {
			t.Errorf("%q", name)
		}
		if err := runsGGUF(head); err != nil && strings.ContainsAny(err.Error(), "\n\x1b\x00") {
			t.Errorf("%q", err)
		}
	})
}
