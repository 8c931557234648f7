package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	manifestVersion = 1
	maxManifest     = 256 << 20
)

// manifest is a session's file.
type manifest struct {
	Version     int    `json:"version"`
	Fingerprint string `json:"fingerprint"`
	Owner       string `json:"owner"`
	Name        string `json:"name"`
	// Named is false where nobody gave the session its name.
	Named bool `json:"named"`
	// Root is where the chain begins, which hides the salt.
	Root       hash    `json:"root"`
	PageTokens int     `json:"page_tokens"`
	Segments   []hash  `json:"segments"`
	Tokens     []int32 `json:"tokens"`

	bytes int64     // of the file
	used  time.Time // the file's time
}

// key is what a session is found by.
type key struct{ fingerprint, owner, name string }

func (m *manifest) key() key { return key{m.Fingerprint, m.Owner, m.Name} }

// file is the name of a session's file. Names are not put into it: some systems take
// two of them for one, or for a device.
func (k key) file() string {
	return hashOf(k.fingerprint, k.owner, k.name).String()[:32] + ".json"
}

// cut returns the headers of the segments that tokens, whole pages of them, are kept in.
func cut(root hash, fingerprint string, pageTokens, pageBytes int, tokens []int32) (list []header) {
	for at, parent := 0, root; at < len(tokens); {
		n := min(segmentPages*pageTokens, len(tokens)-at)
		h := header{fingerprint, parent, pageTokens, pageBytes, tokens[at : at+n]}
		list = append(list, h)
		parent = h.name()
		at += n
	}
	return list
}

// name is the hash by which a segment is found.
func (h *header) name() hash { return h.Parent.next(h.Tokens) }

// parseManifest reads and checks a session's file.
func parseManifest(data []byte) (*manifest, []header, error) {
	m := new(manifest)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, nil, err
	}
	switch {
	case m.Version != manifestVersion:
		return nil, nil, fmt.Errorf("version %d: want %d", m.Version, manifestVersion)
	case m.PageTokens < 1 || m.PageTokens > 1<<16 || len(m.Tokens) == 0 || len(m.Tokens)%m.PageTokens != 0:
		return nil, nil, fmt.Errorf("%d tokens in pages of %d", len(m.Tokens), m.PageTokens)
	}
	headers := cut(m.Root, m.Fingerprint, m.PageTokens, 0, m.Tokens)
	if len(headers) != len(m.Segments) {
		return nil, nil, fmt.Errorf("%d segments for %d tokens: want %d", len(m.Segments), len(m.Tokens), len(headers))
	}
	for i := range headers {
		if headers[i].name() != m.Segments[i] {
			return nil, nil, errors.New("its segments are not those of its tokens")
		}
	}
	return m, headers, nil
}
