package fetch

import (
	"os"
	"path/filepath"
	"testing"

	"windrow/internal/testhelp"
)

// TestFindToken: the token is the one that Hugging Face's tools take. The cases are those of
// huggingface_hub's get_token and get_token_to_send, 1.29, run with the same variables.
func TestFindToken(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{"home/token": "of-home\n", "x/huggingface/token": "of-xdg", "u/.cache/huggingface/token": "of-user", "mine": " of-path \r\n", "blank": "\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	home := []string{"HF_HOME", filepath.Join(dir, "home")}
	env := func(pairs ...string) func(string) string {
		m := map[string]string{"HOME": filepath.Join(dir, "u"), "DIR": dir}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return func(name string) string { return m[name] }
	}
	with := func(pairs ...string) func(string) string { return env(append(home, pairs...)...) }
	for i, c := range []struct {
		env  func(string) string
		want string
	}{
		{with("HF_TOKEN", " a\n", "HUGGING_FACE_HUB_TOKEN", "b", "HF_TOKEN_PATH", filepath.Join(dir, "mine")), "a"},
		{with("HUGGING_FACE_HUB_TOKEN", "b", "HF_TOKEN_PATH", filepath.Join(dir, "mine")), "b"},
		{with("HF_TOKEN_PATH", filepath.Join(dir, "mine")), "of-path"},
		{with("HF_TOKEN_PATH", "$DIR/mine"), "of-path"},
		{with(), "of-home"},
		{with("HF_TOKEN", ""), "of-home"},
		{with("HF_TOKEN", " \n"), "of-home"},
		{with("HF_TOKEN", " ", "HUGGING_FACE_HUB_TOKEN", "b"), "of-home"},
		{with("HF_TOKEN_PATH", filepath.Join(dir, "nowhere")), ""},
		{with("HF_TOKEN_PATH", filepath.Join(dir, "mine", "x")), ""},
		{with("HF_TOKEN_PATH", filepath.Join(dir, "blank")), ""},
		{with("HF_TOKEN", "a", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"), ""},
		{with("HF_TOKEN", "a", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "0"), "a"},
		{env("XDG_CACHE_HOME", "${DIR}/x"), "of-xdg"},
		{env(), "of-user"},
		{env("HF_TOKEN_PATH", "~/.cache/huggingface/token", "HF_HOME", "/nowhere"), "of-user"},
	} {
		got, err := FindToken(c.env)
		if err != nil || got.secret != c.want {
			t.Errorf("case %d: %q, %v; want %q", i, got.secret, err, c.want)
		}
	}
	// A folder is no token, and is not passed over.
	_, err := FindToken(with("HF_TOKEN_PATH", dir))
	testhelp.OneLine(t, "a folder", err, "want a file of one line")
}

// TestWithheld: where a gated model is refused the line says that the environment keeps the
// token back.
func TestWithheld(t *testing.T) {
	s := newScene(t, true)
	s.hub.Add("me/tiny", commitA, tiny(random(1, 5000)))
	s.hub.Lie(status(401, "X-Error-Code", "GatedRepo"))
	var err error
	if s.o.Token, err = FindToken(func(name string) string {
		return map[string]string{"HF_TOKEN": "secret", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}[name]
	}); err != nil {
		t.Fatal(err)
	}
	_, err = s.pull("hf:me/tiny")
	testhelp.OneLine(t, "withheld", err, "gated", "HF_HUB_DISABLE_IMPLICIT_TOKEN keeps the token back")
	for _, r := range s.hub.Requests() {
		if r.Authorization != "" {
			t.Errorf("%s was sent the token", r.Path)
		}
	}
	plain := newScene(t, false)
	plain.hub.Lie(status(401, "X-Error-Code", "GatedRepo"))
	if plain.o.Token, err = NewToken("HF_TOKEN", "secret"); err != nil {
		t.Fatal(err)
	}
	_, err = plain.pull("hf:me/tiny")
	testhelp.OneLine(t, "without TLS", err, "gated", "the token is not sent without https")
}
