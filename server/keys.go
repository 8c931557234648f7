package server

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
)

// Keys are the keys by which clients are let in, each with a name for logs. Only
// their hashes are kept.
type Keys struct{ list []key }

type key struct {
	name string
	hash [sha256.Size]byte
}

// maxKeys bounds a file of keys: each request is compared with all.
const maxKeys = 10000

var keyName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Add adds a key under a name. A key has 8 to 512 bytes.
func (k *Keys) Add(name, secret string) error {
	if len(secret) < 8 || len(secret) > 512 {
		return fmt.Errorf("key %s has %d bytes: want 8 to 512", name, len(secret))
	}
	return k.add(name, sha256.Sum256([]byte(secret)))
}

func (k *Keys) add(name string, hash [sha256.Size]byte) error {
	if !keyName.MatchString(name) {
		return fmt.Errorf("a key is named %.70q: want 1 to 64 letters, digits, '.', '_' or '-'", name)
	}
	if len(k.list) == maxKeys {
		return fmt.Errorf("more than %d keys", maxKeys)
	}
	for _, other := range k.list {
		if other.name == name {
			return fmt.Errorf("two keys are named %s", name)
		}
	}
	k.list = append(k.list, key{name, hash})
	return nil
}

// Read adds the keys of a file: lines of a name, a colon and the SHA-256 of the key in
// hexadecimal; empty lines and those that begin with # are left out.
func (k *Keys) Read(r io.Reader) error {
	lines := bufio.NewScanner(io.LimitReader(r, 4<<20))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, digits, _ := strings.Cut(line, ":")
		sum, err := hex.DecodeString(digits)
		if err != nil || len(sum) != sha256.Size {
			return fmt.Errorf("line %d: want NAME:SHA256, the hash in 64 hexadecimal digits", n)
		}
		if err := k.add(name, [sha256.Size]byte(sum)); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lines.Err()
}

// Len is how many keys there are.
func (k *Keys) Len() int { return len(k.list) }

// find returns the name of a key. It takes the same time whichever key it is, and if
// it is none.
func (k *Keys) find(secret string) (name string, ok bool) {
	hash := sha256.Sum256([]byte(secret))
	found := -1
	for i := range k.list {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], k.list[i].hash[:]), i, found)
	}
	if found < 0 {
		return "", false
	}
	return k.list[found].name, true
}

// authenticate checks a request's key, where there are keys.
func (s *Server) authenticate(r *http.Request) error {
	keys := s.keys.Load()
	if keys == nil {
		return nil
	}
	// Clients of Anthropic's API send the one, the other, or both.
	var given []string
	if scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		given = append(given, secret)
	}
	if secret := r.Header.Get("X-Api-Key"); secret != "" {
		given = append(given, secret)
	}
	if len(given) == 0 {
		return newError(http.StatusUnauthorized, typeAuth, "invalid_api_key", "no key: want the header Authorization: Bearer KEY, or X-Api-Key: KEY")
	}
	for _, secret := range given {
		if name, ok := keys.find(strings.TrimSpace(secret)); ok {
			recordOf(r).key = name
			return nil
		}
	}
	return newError(http.StatusUnauthorized, typeAuth, "invalid_api_key", "this key is not one of the server's")
}
