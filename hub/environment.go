package hub

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Locate finds the cache's folder as Hugging Face's tools do: HF_HUB_CACHE, else
// HUGGINGFACE_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. HF_HUB_DISABLE_SYMLINKS sets NoLinks. A variable that is empty
// is as one that is not there.
func Locate(getenv func(string) string) (*Cache, error) {
	dir := getenv("HF_HUB_CACHE")
	if dir == "" {
		dir = getenv("HUGGINGFACE_HUB_CACHE") // its name until 2023
	}
	var err error
	if dir != "" {
		dir, err = Expand(getenv, dir)
	} else if dir, err = Home(getenv); err == nil {
		dir = filepath.Join(dir, "hub")
	}
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	return &Cache{Root: dir, NoLinks: IsTrue(getenv("HF_HUB_DISABLE_SYMLINKS"))}, nil
}

// Home is the folder of Hugging Face's tools, in which the token lies, too: HF_HOME, else
// XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
func Home(getenv func(string) string) (string, error) {
	if dir := getenv("HF_HOME"); dir != "" {
		return Expand(getenv, dir)
	}
	dir := getenv("XDG_CACHE_HOME")
	if dir == "" {
		dir = filepath.Join("~", ".cache")
	}
	return Expand(getenv, filepath.Join(dir, "huggingface"))
}

// IsTrue reads a variable as Hugging Face's tools do.
func IsTrue(s string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(s))
}

// Offline reports whether the environment forbids connections to the Hub: HF_HUB_OFFLINE
// or, where that is not there, TRANSFORMERS_OFFLINE.
func Offline(getenv func(string) string) bool {
	if s := getenv("HF_HUB_OFFLINE"); s != "" {
		return IsTrue(s)
	}
	return IsTrue(getenv("TRANSFORMERS_OFFLINE"))
}

// Expand replaces ~ or ~NAME at a path's beginning by that user's folder, and $NAME and
// ${NAME} by the variable, as those tools do with every path of the environment. What is
// not known stays as it is.
func Expand(getenv func(string) string, path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		end := strings.IndexFunc(rest, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
		if end < 0 {
			end = len(rest)
		}
		if name := rest[:end]; name == "" {
			home, err := userHome(getenv)
			if err != nil {
				return "", err
			}
			path = home + rest
		} else if u, err := user.Lookup(name); err == nil {
			path = u.HomeDir + rest[end:]
		}
	}
	return variableForm.ReplaceAllStringFunc(path, func(s string) string {
		if value := getenv(strings.Trim(s, "${}")); value != "" {
			return value
		}
		return s
	}), nil
}

var variableForm = regexp.MustCompile(`\$(\w+|\{[^}]*\})`)

// userHome is the folder of who runs the program.
func userHome(getenv func(string) string) (string, error) {
	if home := getenv("HOME"); home != "" && runtime.GOOS != "windows" {
		return home, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		if u, unknown := user.Current(); unknown == nil && u.HomeDir != "" {
			return u.HomeDir, nil
		}
		return "", fmt.Errorf("the cache's folder: %w: set HF_HOME", err)
	}
	return home, nil
}
