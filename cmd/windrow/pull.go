package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"windrow/architecture"
	"windrow/checkpoint"
	"windrow/hub"
	"windrow/hub/fetch"
	"windrow/internal/terminal"
	"windrow/internal/units"
)

func pullCommand() *cli.Command {
	return command(&cli.Command{
		Name:      "pull",
		Usage:     "fetch a model into the cache",
		ArgsUsage: "NAME|FOLDER|FILE|URL",
		Description: "NAME is hf:ORG/NAME[@REVISION][:FILE|:TAG]; else a folder or .gguf file of this machine, or https://HOST/FILE.gguf.\n" +
			"What is there already is not fetched again, and a pull that was interrupted goes on. Every file is verified.\n" +
			"HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE and others are obeyed as by the Hub's\n" +
			"own tools (docs/pull.md), and HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Category: categoryCache, Usage: "show what would be fetched, and what is there; fetch none of it"},
			&cli.StringFlag{Name: "from", Category: categoryCache, Usage: "fetch it from another Windrow, at `HOST:PORT` or a URL, that serves with --share; the key is in " + apiKeyVariable},
			&cli.StringSliceFlag{Name: "peers", Category: categoryCache, Usage: "fetch from other Windrows, too, at `HOST:PORT,…` or URLs, that serve with --share; the hashes are the Hub's, the key is in " + apiKeyVariable},
			&cli.StringFlag{Name: "sha256", Category: categoryCache, Usage: "the hash that the file of a URL has, `HEX`"},
			&cli.BoolFlag{Name: "offline", Category: categoryCache, Usage: "open no connection: fail where the model is not in the cache"},
			&cli.IntFlag{Name: "connections", Category: categoryCache, Value: 8, Usage: "ask over `N` connections at most"},
			&cli.StringFlag{Name: "limit", Category: categoryCache, DefaultText: "none", Usage: "take at most `BYTES` a second, such as 20M"},
			&cli.DurationFlag{Name: "wait", Category: categoryCache, DefaultText: "until it is done", Usage: "wait `TIME` for another process that fetches the same; 0: fail"},
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print what happens, an object a line"},
		},
		Action: pull,
	}, "windrow pull hf:Qwen/Qwen3-0.6B", "windrow pull hf:Qwen/Qwen3-8B-GGUF:Q4_K_M --dry-run", "windrow pull --from 10.0.0.2:8484 hf:Qwen/Qwen3-0.6B", "windrow pull --peers 10.0.0.2:8484,10.0.0.3:8484 hf:Qwen/Qwen3-8B")
}

// maxConnections bounds --connections.
const maxConnections = 64

func pull(c *cli.Context) error {
	o, err := pullOptions(c)
	if err != nil {
		return err
	}
	cache, err := openCache()
	if err != nil {
		return err
	}
	what, from, digest := c.Args().First(), c.String("from"), hub.Digest(c.String("sha256"))
	isURL := strings.HasPrefix(what, "https://") || strings.HasPrefix(what, "http://")
	if digest != "" && !isURL {
		return usagef("--sha256: is of the file of a URL: the Hub's own hashes are compared in any case")
	}
	for _, address := range o.Peers {
		if _, err := fetch.ParsePeer(address); err != nil {
			return usagef("--peers %w", err)
		}
	}
	show := newPullView(c, &o)
	switch {
	case c.NArg() != 1:
		_, err := oneName(c)
		return err
	case len(o.Peers) > fetch.MaxPeers:
		return usagef("--peers: %d of them: want at most %d", len(o.Peers), fetch.MaxPeers)
	case len(o.Peers) > 0 && (from != "" || isURL || isLocal(what)):
		return usagef("--peers: are asked beside the Hub: want a model of the Hub, and no --from")
	case isURL && from != "":
		return usagef("--from and a URL: want one of them")
	case isURL:
		return show.end(fetch.PullURL(c.Context, cache, what, digest, o))
	case isLocal(what) && from == "":
		return show.end(fetch.PullLocal(c.Context, cache, what, o))
	}
	name, err := modelNamed(what)
	if err != nil {
		return err
	}
	if from == "" {
		if err := fetch.CheckEndpoint(o.Endpoint); err != nil {
			return fmt.Errorf("HF_ENDPOINT: %w", err)
		}
		r, err := fetch.Pull(c.Context, cache, name, o)
		var gone *hub.MissingError
		if o.Offline && errors.As(err, &gone) {
			// To be told to pull is no help to who does.
			err = errors.New(gone.Error() + ", and without --offline or HF_HUB_OFFLINE it would be fetched")
		}
		return show.end(r, err)
	}
	if _, err := fetch.ParsePeer(from); err != nil {
		return usagef("--from %w", err)
	}
	// The Hub's token is nobody else's.
	if o.Token, err = fetch.NewToken(apiKeyVariable, os.Getenv(apiKeyVariable)); err != nil {
		return err
	}
	return show.end(fetch.PullFrom(c.Context, cache, from, name, o))
}

// isLocal reports whether a model's name is a path: one begins with . or the root, or ends
// in .gguf and has no repository.
func isLocal(s string) bool {
	return strings.HasPrefix(s, ".") || filepath.IsAbs(s) || !hub.IsName(s) && strings.HasSuffix(strings.ToLower(s), ".gguf") && !strings.Contains(s, ":")
}

// pullOptions reads the flags and the environment.
func pullOptions(c *cli.Context) (o fetch.Options, err error) {
	o = fetch.Options{
		Endpoint: os.Getenv("HF_ENDPOINT"), Connections: c.Int("connections"), Wait: -1, DryRun: c.Bool("dry-run"),
		Peers:   splitList(c.StringSlice("peers")),
		Offline: c.Bool("offline") || hub.Offline(os.Getenv), Check: runs, CheckGGUF: runsGGUF, Agent: "windrow/" + version,
	}
	if o.Connections < 1 || o.Connections > maxConnections {
		return o, usagef("--connections %d: want 1 to %d", o.Connections, maxConnections)
	}
	if c.IsSet("wait") {
		if o.Wait = c.Duration("wait"); o.Wait < 0 {
			return o, usagef("--wait %s: want 0 or more", o.Wait)
		}
	}
	if o.Limit, err = parseBytes("limit", c.String("limit")); err != nil {
		return o, err
	}
	if o.Limit > 0 && o.Limit < 1024 {
		return o, usagef("--limit %s: want 1K or more", c.String("limit"))
	}
	if o.Offline {
		return o, nil
	}
	if len(o.Peers) > 0 {
		if o.PeerToken, err = fetch.NewToken(apiKeyVariable, os.Getenv(apiKeyVariable)); err != nil {
			return o, err
		}
	}
	o.Token, err = fetch.FindToken(os.Getenv)
	return o, err
}

// splitList parts the values of a flag that may stand several times, or have several parted
// by commas.
func splitList(values []string) (list []string) {
	for _, v := range values {
		list = append(list, strings.Split(v, ",")...)
	}
	return list
}

// product begins sentences about the program.
const product = "Windrow"

// runs reports, as an error, that Windrow does not run a model of that config.json.
func runs(config []byte) error {
	var kind struct {
		ModelType     string   `json:"model_type"`
		Architectures []string `json:"architectures"`
	}
	if json.Unmarshal(config, &kind) == nil {
		name := kind.ModelType
		if name == "" && len(kind.Architectures) > 0 {
			name = kind.Architectures[0]
		}
		known := slices.ContainsFunc(architecture.All(), func(a *architecture.Architecture) bool { return a.Name == name || a.Class == name })
		if name != "" && !known {
			return fmt.Errorf("%s does not run %.60s; it runs %s", product, escaped(name), architecture.Names(" and ", func(a *architecture.Architecture) string { return a.Name }))
		}
	}
	if _, err := checkpoint.ParseConfig(config); err != nil {
		return fmt.Errorf("%s does not run it: config.json: %w", product, err)
	}
	return nil
}

// runsGGUF reports, as an error, that Windrow does not run the model of a .gguf file that
// begins with these bytes. Where they do not say, that is found when it is opened.
func runsGGUF(head []byte) error {
	if len(head) < 4 || string(head[:4]) != "GGUF" {
		return fmt.Errorf("it is no GGUF file: it begins with %q", head[:min(4, len(head))])
	}
	name := ggufArchitecture(head)
	if name == "" || slices.ContainsFunc(architecture.All(), func(a *architecture.Architecture) bool { return a.GGUF == name }) {
		return nil
	}
	return fmt.Errorf("%s does not run %.60s; it runs %s", product, escaped(name), architecture.Names(" and ", func(a *architecture.Architecture) string { return a.GGUF }))
}

// ggufArchitecture is general.architecture among the first bytes of a GGUF file, where it
// stands before any list; "" where it does not.
func ggufArchitecture(head []byte) string {
	const beforeKeys, text = 4 + 4 + 8 + 8, 8
	sizes := map[uint32]uint64{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8} // of the other types
	if len(head) < beforeKeys {
		return ""
	}
	rest := head[beforeKeys:]
	take := func(n uint64) (b []byte) {
		if n > uint64(len(rest)) {
			rest = nil
			return nil
		}
		b, rest = rest[:n], rest[n:]
		return b
	}
	str := func() string {
		if n := take(8); n != nil {
			return string(take(binary.LittleEndian.Uint64(n)))
		}
		return ""
	}
	for len(rest) > 0 {
		key, kind := str(), take(4)
		if kind == nil {
			return ""
		}
		switch k := binary.LittleEndian.Uint32(kind); {
		case k == text:
			if value := str(); key == "general.architecture" {
				return value
			}
		case sizes[k] == 0:
			return ""
		default:
			take(sizes[k])
		}
	}
	return ""
}

// pullView shows what happens: a bar in a terminal, a line now and then in a log, or where
// HF_HUB_DISABLE_PROGRESS_BARS is set, events with --json.
type pullView struct {
	ctx   context.Context
	out   io.Writer
	err   io.Writer
	json  bool
	dry   bool
	limit int64
	noBar bool
	bar   *progressbar.ProgressBar
	shown int64     // by the bar
	next  time.Time // when a log gets its next line
	last  fetch.Event
	kept  int64
	total int64
}

// pullLogEvery is the time between lines of progress in a log.
const pullLogEvery = 10 * time.Second

func newPullView(c *cli.Context, o *fetch.Options) *pullView {
	v := &pullView{ctx: c.Context, out: c.App.Writer, err: c.App.ErrWriter, json: c.Bool("json"), dry: o.DryRun, limit: o.Limit, next: time.Now().Add(pullLogEvery),
		noBar: hub.IsTrue(os.Getenv("HF_HUB_DISABLE_PROGRESS_BARS"))}
	o.Event = v.event
	return v
}

func (v *pullView) event(e fetch.Event) {
	if e.Event == "progress" {
		v.last = e
	}
	if v.json {
		if e.Event != "progress" || e.Verifying || time.Now().After(v.next) || e.Done == e.Total {
			v.next = time.Now().Add(time.Second)
			writeJSONLine(v.out, e)
		}
		return
	}
	switch e.Event {
	case "plan":
		v.kept, v.total = e.Plan.Kept, e.Plan.Bytes
		if v.dry {
			v.writePlan(e)
			return
		}
		if e.Plan.Missing > 0 || e.Plan.Kept > 0 {
			fmt.Fprintf(v.err, "%s: %s, %s, of which %s are to come\n", escaped(e.Name), counted(len(e.Plan.Files), "file"), units.Bytes(e.Plan.Bytes), units.Bytes(e.Plan.Missing))
		}
	case "progress":
		v.progress(e)
	case "wait", "retry", "note":
		v.clear()
		fmt.Fprintf(v.err, "windrow: %s\n", oneLine(e.Text))
	}
}

// writePlan is what --dry-run shows.
func (v *pullView) writePlan(e fetch.Event) {
	p := e.Plan
	fmt.Fprintf(v.out, "%s at %s\n", escaped(e.Name), e.Commit)
	for _, f := range p.Files {
		state := f.State
		if f.Kept > 0 {
			state += ", " + units.Bytes(f.Kept) + " kept"
		}
		fmt.Fprintf(v.out, "  %-10s  %s  (%s)\n", units.Bytes(f.Size), escaped(f.Path), state)
	}
	fmt.Fprintf(v.out, "%s in all: %s here, %s shared with other models, %s kept of an earlier pull, %s missing",
		units.Bytes(p.Bytes), units.Bytes(p.Here), units.Bytes(p.Shared), units.Bytes(p.Kept), units.Bytes(p.Missing))
	if p.Free >= 0 {
		fmt.Fprintf(v.out, "; %s free", units.Bytes(p.Free))
	}
	if v.limit > 0 && p.Missing > 0 {
		fmt.Fprintf(v.out, "; %s at %s/s", time.Duration(float64(p.Missing)/float64(v.limit)*float64(time.Second)).Round(time.Second), units.Bytes(v.limit))
	}
	fmt.Fprintln(v.out)
}

// progress draws the bar, or writes a line.
func (v *pullView) progress(e fetch.Event) {
	note := fmt.Sprintf("%s of %s, %s/s", units.Bytes(e.Done), units.Bytes(e.Total), units.Bytes(int64(e.Rate)))
	if e.Rate > 1 && e.Done < e.Total {
		left := time.Duration(float64(e.Total-e.Done) / e.Rate * float64(time.Second))
		note += fmt.Sprintf(", %s left, %s", left.Round(time.Second), counted(e.Connections, "connection"))
	}
	if e.Verifying {
		note += ", verifying"
	}
	if _, ok := terminal.Is(v.err); !ok || v.noBar {
		if now := time.Now(); now.After(v.next) {
			v.next = now.Add(pullLogEvery)
			fmt.Fprintln(v.err, note)
		}
		return
	}
	if v.bar == nil {
		v.bar = progressbar.NewOptions64(max(e.Total, 1), progressbar.OptionSetWriter(v.err), progressbar.OptionSetWidth(24),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false))
	}
	v.bar.Describe(fmt.Sprintf("%-60s", note))
	// It is cleared at the end, not before. Where bytes are lost, as of a server that begins
	// anew, it stands still: only the numbers go back.
	v.shown = max(v.shown, min(e.Done, max(e.Total, 1)-1))
	v.bar.Set64(v.shown)
}

func (v *pullView) clear() {
	if v.bar != nil {
		v.bar.Clear()
	}
}

// end says how it ended.
func (v *pullView) end(r *fetch.Result, err error) error {
	v.clear()
	interrupted := errors.Is(context.Cause(v.ctx), errInterrupted)
	switch {
	case err != nil && interrupted && v.last.Total > 0:
		fmt.Fprintf(v.err, "windrow: interrupted: kept %s of %s; the same command goes on\n", units.Bytes(v.last.Done), units.Bytes(v.last.Total))
		return &exitError{code: exitInterrupted}
	case err != nil && interrupted:
		return errInterrupted
	case err != nil && v.last.Done > 0 && v.last.Done < v.last.Total:
		return fmt.Errorf("%w; kept %s of %s: the same command goes on", err, units.Bytes(v.last.Done), units.Bytes(v.last.Total))
	case err != nil:
		return err
	case v.json || v.dry:
		return nil
	}
	switch {
	case r.Before != "" && r.Changed > 0:
		fmt.Fprintf(v.err, "%s: %d of %d files have changed since %s, %s\n", escaped(r.Name), r.Changed, r.Files, r.Before[:12], units.Bytes(r.ChangedBytes))
	case r.Fetched == 0:
		fmt.Fprintf(v.err, "%s: all is there\n", escaped(r.Name))
	}
	if r.FromPeers > 0 {
		fmt.Fprintf(v.err, "%s of %s came from peers\n", units.Bytes(r.FromPeers), units.Bytes(r.Fetched))
	}
	fmt.Fprintln(v.out, cmp.Or(r.Path, r.Name))
	return nil
}
