package fetch

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"windrow/hub"
)

// Token is a secret that is sent to one origin. However it is printed, it is not shown.
type Token struct {
	secret string
	// withheld says that there may be one, and HF_HUB_DISABLE_IMPLICIT_TOKEN keeps it back.
	withheld bool
}

// String implements fmt.Stringer.
func (t Token) String() string {
	if t.secret == "" {
		return "(none)"
	}
	return "(set)"
}

// Format implements fmt.Formatter, for all verbs.
func (t Token) Format(s fmt.State, _ rune) { s.Write([]byte(t.String())) }

// LogValue implements slog.LogValuer.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText implements encoding.TextMarshaler.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// NewToken makes a token of a secret; what says where it was found.
func NewToken(what, secret string) (Token, error) {
	secret = strings.TrimSpace(secret)
	for _, r := range secret {
		if r <= ' ' || r > '~' {
			return Token{}, fmt.Errorf("%s: the token has characters that none has: want one line of letters and digits", what)
		}
	}
	return Token{secret: secret}, nil
}

// FindToken finds the token as Hugging Face's tools do: HF_TOKEN, else
// HUGGING_FACE_HUB_TOKEN, else the file that HF_TOKEN_PATH names, else HF_HOME/token; what
// is blank is none. There may be none, and with HF_HUB_DISABLE_IMPLICIT_TOKEN there is none.
func FindToken(getenv func(string) string) (Token, error) {
	if hub.IsTrue(getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		return Token{withheld: true}, nil
	}
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if s := getenv(name); s != "" {
			if t, err := NewToken(name, s); err != nil || t.secret != "" {
				return t, err
			}
			break // a blank one hides the older name's, and not the file's
		}
	}
	path := getenv("HF_TOKEN_PATH")
	if path == "" {
		home, err := hub.Home(getenv)
		if err != nil {
			return Token{}, nil
		}
		path = filepath.Join(home, "token")
	}
	path, err := hub.Expand(getenv, path)
	if err != nil {
		return Token{}, nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 4096 {
		if err == nil {
			err = fmt.Errorf("%s: want a file of one line", path)
		} else if os.IsNotExist(err) || isNotDir(err) {
			err = nil
		}
		return Token{}, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Token{}, err
	}
	return NewToken(path, string(data))
}

func isNotDir(err error) bool {
	pe, ok := err.(*fs.PathError)
	return ok && strings.Contains(pe.Err.Error(), "not a directory")
}
