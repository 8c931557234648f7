package clients

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the table of docs/clients.md anew")

// adapter sends cases through a client.
type adapter struct {
	name string
	api  string // "chat" or "messages"
	// also are other APIs that it speaks.
	also []string
	// send asks by base, which ends in /v1 or in /v1/, and says what came. A *cannotSend
	// is a request that the client has no way to make.
	send func(ctx context.Context, base string, c *detailCase) (*result, error)
}

// adapters are those of clients for Go.
func adapters() []*adapter {
	return []*adapter{openaiGo(), goOpenAI(), langchainGo(), anthropicGo()}
}

// The marks of the table.
const (
	markChecked = "✓"
	markBlind   = "–"
	markAbsent  = ""
)

// cells collect what tests found: a mark by client and detail.
type cells struct {
	mutex sync.Mutex
	marks map[string]map[int]string
}

// add joins what a case found to what others of its detail did.
func (x *cells) add(client string, detail int, mark string) {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	if x.marks[client] == nil {
		x.marks[client] = map[int]string{}
	}
	switch old := x.marks[client][detail]; {
	case mark == markChecked, old == "":
		x.marks[client][detail] = mark
	}
}

// base is where a case's server is; with spoiled set, behind the proxy that breaks its
// detail.
func (c *detailCase) base(spoiled bool) string {
	url := servers[c.Server]
	if spoiled {
		url = fmt.Sprintf("%s/%d/%s", servers["spoil"], c.Detail, c.Server)
	}
	url += "/v1"
	if c.Slash {
		url += "/"
	}
	return url
}

// speaks reports whether a client is to run a case.
func (a *adapter) speaks(c *detailCase) bool {
	return c.API == "" || c.API == a.api || slices.Contains(a.also, c.API)
}

// try runs a case and says what is wrong with what came; "": nothing.
func (a *adapter) try(ctx context.Context, c *detailCase, spoiled bool) (wrong string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	began := time.Now()
	var r *result
	if c.Op == "leave" {
		r, err = a.leave(ctx, c, spoiled)
	} else {
		r, err = a.send(ctx, c.base(spoiled), c)
	}
	if err != nil {
		return err.Error(), err
	}
	r.Waited = time.Since(began).Milliseconds()
	r.complete()
	if wrong = match(plain(c.Want), plain(r), "got"); wrong != "" && r.Error != nil {
		wrong += fmt.Sprintf(" (refused: %v)", r.Error)
	}
	if wrong != "" || !c.Twice {
		return wrong, nil
	}
	again, err := a.send(ctx, c.base(spoiled), c)
	if err != nil {
		return err.Error(), err
	}
	again.complete()
	return match(plain(r.Choices), plain(again.Choices), "again"), nil
}

// leave ends a request in its middle and reports whether its place is free soon.
func (a *adapter) leave(ctx context.Context, c *detailCase, spoiled bool) (*result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := a.send(ctx, c.base(spoiled), c)
		cancel() // nobody need wait for it to run
		ended <- err
	}()
	if !running(ctx, servers[c.Server], func(n int) bool { return n > 0 }) {
		return nil, <-ended
	}
	cancel()
	<-ended
	patience := time.Minute
	if spoiled { // then it is not to be free
		patience = 500 * time.Millisecond
	}
	soon, end := context.WithTimeout(context.Background(), patience)
	defer end()
	free := running(soon, servers[c.Server], func(n int) bool { return n == 0 })
	if !free {
		stopSpoiled() // those that the proxy holds on to
	}
	return &result{Freed: free}, nil
}

// running waits, for as long as ctx lasts, until a number of requests run.
func running(ctx context.Context, url string, want func(int) bool) bool {
	for {
		var slots struct{ Running int }
		if err := getJSON(ctx, url+"/slots", &slots); err == nil && want(slots.Running) {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestDetails runs every case through every client, and compares the table that comes
// of it with the one that is in the docs.
func TestDetails(t *testing.T) {
	d, err := readDetails()
	if err != nil {
		t.Fatal(err)
	}
	found := &cells{marks: map[string]map[int]string{}}
	var names []string
	for _, a := range adapters() {
		names = append(names, a.name)
		t.Run(a.name, func(t *testing.T) { runDetails(t, d, a, found) })
	}
	more := npmDetails(t, found)
	observed.Lock()
	defer observed.Unlock()
	for i, err := range observed.wrong {
		if i < 10 {
			t.Error(err)
		}
	}
	if t.Failed() || len(more) == 0 {
		return // the table is of all
	}
	names = append(names, more...)
	const path = "../docs/clients.md"
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- made by TestDetails -->\n", "<!-- until here -->\n"
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	fresh := before + begin + found.table(d, names) + end + after
	switch {
	case fresh == string(old):
	case *update:
		if err := os.WriteFile(path, []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has another table than this run made: go test -run TestDetails -update, and read the diff\n%s", path, found.table(d, names))
	}
}

func runDetails(t *testing.T, d *details, a *adapter, found *cells) {
	for i, c := range d.Cases {
		if !a.speaks(c) {
			continue
		}
		t.Run(fmt.Sprintf("%d/%d", c.Detail, i), func(t *testing.T) {
			wrong, err := a.try(t.Context(), c, false)
			if what, ok := errUnsent(err); ok {
				t.Logf("%s does not send %s", a.name, what)
				return
			}
			if wrong != "" {
				t.Fatal(wrong)
			}
			if wrong, _ := a.try(t.Context(), c, true); wrong != "" {
				t.Logf("spoiled: %s", wrong)
				found.add(a.name, c.Detail, markChecked)
			} else {
				found.add(a.name, c.Detail, markBlind)
			}
		})
	}
}

// table is what was found, in Markdown.
func (x *cells) table(d *details, names []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | detail | %s |\n|---|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for n := 1; n <= len(d.What); n++ {
		fmt.Fprintf(&b, "| %d | %s |", n, d.What[n])
		for _, name := range names {
			fmt.Fprintf(&b, " %s |", x.marks[name][n])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// getJSON reads a JSON reply, with the key that the locked server wants.
func getJSON(ctx context.Context, url string, v any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, w.Status)
	}
	return decode(w.Body, v)
}
