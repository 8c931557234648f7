package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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
	// States are places that the session can go back to, if its model has states.
	States []place `json:"states,omitempty"`

	bytes int64     // of the file
	used  time.Time // the file's time
}

// place is a segment of states: behind tokens From to End of the session.
type place struct {
	From  int  `json:"from"`
	End   int  `json:"end"`
	Bytes int  `json:"bytes"`
	Name  hash `json:"name"`
}

// mostPlaces is more than a session has.
const mostPlaces = 64

// files are the names of all segments.
func (m *manifest) files() []hash {
	list := slices.Clone(m.Segments)
	for _, p := range m.States {
		list = append(list, p.Name)
	}
	return list
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
		h := header{Fingerprint: fingerprint, Parent: parent, PageTokens: pageTokens, PageBytes: pageBytes, Tokens: tokens[at : at+n]}
		list = append(list, h)
		parent = h.name()
		at += n
	}
	return list
}

// cutState returns the header of the segment of a place, of which cut's of all tokens are
// known.
func (p *place) cut(headers []header) header {
	each := segmentPages * headers[0].PageTokens
	h := headers[(p.End-1)/each]
	h.Tokens = h.Tokens[:(p.End-1)%each+1]
	h.State = &stateHeader{p.From, p.Bytes}
	return h
}

// name is the hash by which a segment is found.
func (h *header) name() hash {
	name := h.Parent.next(h.Tokens)
	if h.State != nil {
		name = hashOf("states", name.String(), fmt.Sprint(h.State.From))
	}
	return name
}

// parseManifest reads and checks a session's file; headers are those of its files().
func parseManifest(data []byte) (*manifest, []header, error) {
	m := new(manifest)
	// A member under another name is damage: without its states a session is of no use.
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, nil, errors.New("there is more behind its end")
	}
	switch {
	case m.Version != manifestVersion:
		return nil, nil, fmt.Errorf("version %d: want %d", m.Version, manifestVersion)
	case m.PageTokens < 1 || m.PageTokens > 1<<16 || len(m.Tokens) == 0 || len(m.Tokens)%m.PageTokens != 0 && len(m.States) == 0:
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
	if len(m.States) > mostPlaces {
		return nil, nil, fmt.Errorf("%d places to go back to: want %d at most", len(m.States), mostPlaces)
	}
	all := headers
	for _, p := range m.States {
		if p.From < 0 || p.From > p.End || p.End < 1 || p.End > len(m.Tokens) || p.Bytes < 1 || p.Bytes > maxStates {
			return nil, nil, fmt.Errorf("%d bytes of states from token %d to %d of %d", p.Bytes, p.From, p.End, len(m.Tokens))
		}
		h := p.cut(headers)
		if h.name() != p.Name {
			return nil, nil, errors.New("its states are not those of its tokens")
		}
		all = append(all, h)
	}
	return m, all, nil
}
