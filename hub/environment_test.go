package hub

import (
	"os/user"
	"path/filepath"
	"runtime"
	"testing"
)

// env is an environment of tests.
func env(pairs ...string) func(string) string {
	m := map[string]string{"HOME": "/u"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

// TestLocate: the cache is where Hugging Face's tools have it. The cases are those of
// huggingface_hub's constants.py, 1.29, run with the same variables; but what is set to
// nothing counts as not set, which there is a folder of the working directory.
func TestLocate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths of Unix")
	}
	for _, c := range []struct {
		env  func(string) string
		want string
	}{
		{env("HF_HUB_CACHE", "/c", "HUGGINGFACE_HUB_CACHE", "/old", "HF_HOME", "/h", "XDG_CACHE_HOME", "/x"), "/c"},
		{env("HUGGINGFACE_HUB_CACHE", "/old", "HF_HOME", "/h", "XDG_CACHE_HOME", "/x"), "/old"},
		{env("HF_HOME", "/h", "XDG_CACHE_HOME", "/x"), "/h/hub"},
		{env("XDG_CACHE_HOME", "/x"), "/x/huggingface/hub"},
		{env(), "/u/.cache/huggingface/hub"},
		{env("HF_HOME", "", "XDG_CACHE_HOME", "", "HF_HUB_CACHE", ""), "/u/.cache/huggingface/hub"},
		{env("HF_HOME", "~/models"), "/u/models/hub"},
		{env("HF_HUB_CACHE", "~"), "/u"},
		{env("XDG_CACHE_HOME", "~/x"), "/u/x/huggingface/hub"},
		{env("HF_HOME", "$SCRATCH/hf", "SCRATCH", "/s"), "/s/hf/hub"},
		{env("HF_HUB_CACHE", "${SCRATCH}/$USER", "SCRATCH", "/s", "USER", "ada"), "/s/ada"},
		{env("HF_HUB_CACHE", "/$NOWHERE/${NO}"), "/$NOWHERE/${NO}"},
		{env("HF_HUB_CACHE", "/a~b"), "/a~b"},
		{env("HF_HUB_CACHE", "~nobodyofthatname/x"), func() string { s, _ := filepath.Abs("~nobodyofthatname/x"); return s }()},
	} {
		got, err := Locate(c.env)
		if err != nil || got.Root != c.want || got.NoLinks {
			t.Errorf("%+v, %v; want %s", got, err, c.want)
		}
	}
	if u, err := user.Current(); err == nil {
		if got, err := Locate(env("HF_HUB_CACHE", "~"+u.Username+"/x")); err != nil || got.Root != filepath.Join(u.HomeDir, "x") {
			t.Errorf("~%s/x: %+v, %v", u.Username, got, err)
		}
	}
	if c, err := Locate(env("HF_HUB_DISABLE_SYMLINKS", "yes")); err != nil || !c.NoLinks {
		t.Errorf("HF_HUB_DISABLE_SYMLINKS: %+v, %v", c, err)
	}
}

// TestOffline: the values are those of Hugging Face's tools.
func TestOffline(t *testing.T) {
	for _, c := range []struct {
		env  func(string) string
		want bool
	}{
		{env(), false},
		{env("HF_HUB_OFFLINE", "1"), true}, {env("HF_HUB_OFFLINE", "on"), true}, {env("HF_HUB_OFFLINE", "Yes"), true}, {env("HF_HUB_OFFLINE", "TRUE"), true},
		{env("HF_HUB_OFFLINE", "0"), false}, {env("HF_HUB_OFFLINE", "2"), false}, {env("HF_HUB_OFFLINE", "true "), false},
		{env("TRANSFORMERS_OFFLINE", "1"), true},
		{env("TRANSFORMERS_OFFLINE", "1", "HF_HUB_OFFLINE", ""), true},
		{env("TRANSFORMERS_OFFLINE", "1", "HF_HUB_OFFLINE", "0"), false},
	} {
		if got := Offline(c.env); got != c.want {
			t.Errorf("%q, %q: %t", c.env("HF_HUB_OFFLINE"), c.env("TRANSFORMERS_OFFLINE"), got)
		}
	}
}
