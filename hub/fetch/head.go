package fetch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"windrow/hub"
)

// GGUFHead is how many bytes of a .gguf model are looked at before the rest is fetched: what
// it says of its architecture is among the first.
const GGUFHead = 64 << 10

func isGGUF(f hub.File) bool { return strings.HasSuffix(strings.ToLower(f.Path), ".gguf") }

// checkHead asks whether a .gguf model can be run, before all of it is fetched. Nobody has
// verified these bytes: they are no part of what is kept.
func (p *pull) checkHead(ctx context.Context, plan *Plan) error {
	i := slices.IndexFunc(plan.Files, func(f PlannedFile) bool { return isGGUF(f.File) })
	if i < 0 || p.o.CheckGGUF == nil || plan.Files[i].State != "missing" || plan.Files[i].Size == 0 {
		return nil // it was looked at when it was begun
	}
	f := plan.Files[i].File
	return p.checkAddress(ctx, f, p.source.address(p.repo, p.commit, f))
}

// checkAddress is checkHead of a file at an address.
func (p *pull) checkAddress(ctx context.Context, f hub.File, u *url.URL) error {
	var head []byte
	err := p.try(ctx, f.Path, func() (err error) {
		head, err = p.client.head(ctx, u, min(f.Size, GGUFHead))
		return err
	})
	if err != nil {
		return told(p.source, p.repo, p.name.Revision, err)
	}
	if err := p.o.CheckGGUF(head); err != nil {
		return fmt.Errorf("%s: %s: %w", p.name, f.Path, err)
	}
	return nil
}

// head asks for the first n bytes of a file. A server that knows no ranges sends more, of
// which no more are taken.
func (c *client) head(ctx context.Context, u *url.URL, n int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*headerTime)
	defer cancel()
	resp, at, err := c.get(ctx, u, http.Header{"Range": {fmt.Sprintf("bytes=0-%d", n-1)}}, nil)
	if err != nil {
		return nil, err
	}
	if err := asked(resp, at); err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data := make([]byte, n)
	if _, err := io.ReadFull(resp.Body, data); err != nil {
		return nil, dialError(ctx, at, err)
	}
	return data, nil
}

// headOf are the first bytes of a file of this machine.
func headOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, GGUFHead))
}
