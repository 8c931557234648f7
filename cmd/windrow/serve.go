package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"windrow/engine"
	"windrow/schedule"
	"windrow/server"
)

const categoryServer = "Server"

func serveCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "serve",
		Usage: "answer requests of the OpenAI API over HTTP",
		Description: "Opens a model, listens, and answers until it is interrupted; then running requests get the time of --drain.\n" +
			"Without keys it listens on this machine's own addresses only.",
		Flags: slices.Concat(modelFlags(), []cli.Flag{
			&cli.IntFlag{Name: "mask-id", Category: categoryModel, Value: -1, DefaultText: "the config's", Usage: "mask token `ID`"},
			&cli.BoolFlag{Name: "no-think", Category: categoryModel, Usage: "answer without a thinking part where a request does not say (Qwen3)"},
			&cli.StringFlag{Name: "model-name", Category: categoryModel, DefaultText: "the last part of the path", Usage: "what clients call the model, `NAME`"},
			&cli.IntFlag{Name: "sequences", Category: categoryModel, Value: 32, Usage: "how many requests run at once, `N`"},
			&cli.IntFlag{Name: "queue", Category: categoryModel, Value: 128, Usage: "how many requests wait, `N`"},
			&cli.StringFlag{Name: "kv-memory", Category: categoryModel, DefaultText: "a quarter of the memory, or 80 % of what a GPU has free", Usage: "most memory for keys and values, `BYTES`, such as 4GiB"},
			&cli.StringSliceFlag{Name: "listen", Category: categoryServer, DefaultText: server.DefaultAddress, Usage: "`ADDRESS` to listen at, HOST:PORT or unix:PATH (repeatable)"},
			&cli.StringSliceFlag{Name: "api-key", Category: categoryServer, EnvVars: []string{"WINDROW_API_KEY"}, Usage: "let in who brings this `KEY` (repeatable)"},
			&cli.StringFlag{Name: "api-key-file", Category: categoryServer, Usage: "`FILE` of keys: lines of NAME:SHA256"},
			&cli.BoolFlag{Name: "insecure", Category: categoryServer, Usage: "listen at other addresses of this machine without keys"},
			&cli.StringSliceFlag{Name: "host", Category: categoryServer, Usage: "`NAME` by which clients may call the server, besides localhost and addresses (repeatable)"},
			&cli.BoolFlag{Name: "any-model", Category: categoryServer, Usage: "answer whatever model a request asks for"},
			&cli.BoolFlag{Name: "strict-fields", Category: categoryServer, Usage: "refuse fields that are not known"},
			&cli.BoolFlag{Name: "open-metrics", Category: categoryServer, Usage: "show /metrics, /props and /slots without a key"},
			&cli.DurationFlag{Name: "drain", Category: categoryServer, Value: 30 * time.Second, Usage: "`TIME` that running requests get at the end"},
		}),
		Action: serve,
	}, `windrow serve`, `windrow serve --model ~/models/Qwen3-8B --listen 0.0.0.0:8484 --api-key-file keys`)
}

// maxSequences bounds --sequences and --queue, far beyond what a machine runs.
const maxSequences = 1 << 16

func serve(c *cli.Context) error {
	machine, scheduling, o, err := parseServe(c)
	if err != nil {
		return err
	}
	addresses := c.StringSlice("listen")
	if len(addresses) == 0 {
		addresses = []string{server.DefaultAddress}
	}
	for _, a := range addresses {
		if !server.Private(a) && o.Keys == nil && !c.Bool("insecure") {
			return usagef("--listen %s: others can connect there: give --api-key or --api-key-file, or --insecure", a)
		}
	}
	// Before the model is opened: an address in use is said at once.
	listeners, err := listen(addresses)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	e, err := engine.Open(c.Context, c.String("model"), machine)
	if err != nil {
		return err
	}
	defer e.Close()
	if scheduling.KVMemory == 0 {
		scheduling.KVMemory = e.KVRoom(c.Context)
	}
	s := schedule.New(e, scheduling)
	defer s.Close()
	ctx, stop := context.WithCancel(c.Context)
	defer stop()
	m := server.ForEngine(ctx, e, s, versionLine())
	m.NoThink, m.Sequences, m.BatchInvariant = machine.NoThink, c.Int("sequences"), !machine.BatchVariant
	if name := c.String("model-name"); name != "" {
		m.Name = name
	}
	for _, l := range listeners {
		fmt.Fprintf(c.App.ErrWriter, "windrow: %s listens at %s\n", m.Name, where(l))
	}
	if machine.BatchVariant {
		fmt.Fprintln(c.App.ErrWriter, "windrow: --batch-invariant=false: what a request gets may depend on those beside it")
	}
	return server.New(m, o).Serve(ctx, c.Duration("drain"), listeners...)
}

// parseServe reads the flags.
func parseServe(c *cli.Context) (machine engine.Options, scheduling schedule.Options, o server.Options, err error) {
	if c.Args().Present() {
		err = usagef("takes no arguments, got %q: the model is --model", c.Args().First())
		return
	}
	if machine, err = parseMachine(c); err != nil {
		return
	}
	for _, name := range []string{"sequences", "queue"} {
		if n := c.Int(name); n < 1 || n > maxSequences {
			err = usagef("--%s %d: want 1 to %d", name, n, maxSequences)
			return
		}
	}
	scheduling = schedule.Options{Sequences: c.Int("sequences"), Queue: c.Int("queue")}
	if scheduling.KVMemory, err = parseBytes("kv-memory", c.String("kv-memory")); err != nil {
		return
	}
	if d := c.Duration("drain"); d < 0 {
		err = usagef("--drain %s: want 0 or more", d)
		return
	}
	o = server.Options{
		Hosts: c.StringSlice("host"), AnyModel: c.Bool("any-model"), StrictFields: c.Bool("strict-fields"), OpenMetrics: c.Bool("open-metrics"),
	}
	if _, terminal := isTerminal(c.App.ErrWriter); terminal {
		o.Log = slog.New(slog.NewTextHandler(c.App.ErrWriter, nil))
	} else {
		o.Log = slog.New(slog.NewJSONHandler(c.App.ErrWriter, nil))
	}
	o.Keys, err = readKeys(c)
	return
}

// readKeys reads --api-key and --api-key-file; nil: there are none.
func readKeys(c *cli.Context) (*server.Keys, error) {
	given, path := c.StringSlice("api-key"), c.String("api-key-file")
	if len(given) == 0 && path == "" {
		return nil, nil
	}
	keys := new(server.Keys)
	if path != "" {
		if err := readKeyFile(keys, path); err != nil {
			return nil, err
		}
	}
	for i, secret := range given {
		if err := keys.Add(fmt.Sprintf("key-%d", i+1), secret); err != nil {
			return nil, usagef("--api-key: %v", err)
		}
	}
	return keys, nil
}

func readKeyFile(keys *server.Keys, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--api-key-file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("--api-key-file: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("--api-key-file: %s is no file", path)
	case runtime.GOOS != "windows" && info.Mode()&0o077 != 0:
		return fmt.Errorf("--api-key-file: others can read %s: chmod 600 %s", path, path)
	}
	if err := keys.Read(f); err != nil {
		return fmt.Errorf("--api-key-file: %s: %w", path, err)
	}
	if keys.Len() == 0 {
		return fmt.Errorf("--api-key-file: %s has no keys", path)
	}
	return nil
}

// parseBytes reads a number of bytes, such as 512MiB or 4G; 0 for "".
func parseBytes(flag, s string) (int64, error) {
	digits := strings.TrimRight(s, "BKMGTi")
	unit, known := map[string]float64{"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[strings.TrimSuffix(strings.TrimSuffix(s[len(digits):], "B"), "i")]
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(digits, 64)
	if b := n * unit; err != nil || !known || !(b >= 1 && b < math.MaxInt64) {
		return 0, usagef("--%s %q: want bytes, such as 4GiB or 512MiB", flag, s)
	}
	return int64(n * unit), nil
}

// listen listens at all addresses, or at none.
func listen(addresses []string) (list []net.Listener, err error) {
	for _, a := range addresses {
		l, err := server.Listen(a)
		if err != nil {
			closeAll(list)
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

func closeAll(list []net.Listener) {
	for _, l := range list {
		l.Close()
	}
}

// where is a listener's address as a client writes it.
func where(l net.Listener) string {
	a := l.Addr()
	if a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return "http://" + a.String()
}
