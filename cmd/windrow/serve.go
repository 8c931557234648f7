package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"windrow/internal/terminal"
	"windrow/listen"
	"windrow/server"
)

const categoryServer = "Server"

// serveFlags are those of serve, and of start, which hands them on.
func serveFlags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		&cli.StringSliceFlag{Name: "model", Aliases: []string{"m"}, Category: categoryModel, DefaultText: "the embedded tiny-gsm", Usage: "model `[NAME=]PATH`: a folder with config.json, safetensors and tokenizer.json, or a .gguf file (repeatable: the first is loaded at the start, others when they are asked for)"},
	}, machineFlags(), draftFlags(draftFlag()), []cli.Flag{
		&cli.IntFlag{Name: "mask-id", Category: categoryModel, Value: -1, DefaultText: "the config's", Usage: "mask token `ID`"},
		&cli.BoolFlag{Name: "no-think", Category: categoryModel, Usage: "answer without a thinking part where a request does not say (Qwen3)"},
		&cli.StringFlag{Name: "model-name", Category: categoryModel, DefaultText: "the last part of the path", Usage: "what clients call the model, `NAME`"},
		&cli.IntFlag{Name: "models-max", Category: categoryModel, Value: 1, Usage: "how many models are loaded at a time, `N`"},
		&cli.DurationFlag{Name: "idle-unload", Category: categoryModel, DefaultText: "10m where a socket was handed over, else never", Usage: "unload a model `TIME` after its last request; 0: never"},
		&cli.IntFlag{Name: "sequences", Category: categoryModel, Value: 32, Usage: "how many requests run at once, `N`"},
		&cli.IntFlag{Name: "queue", Category: categoryModel, Value: 128, Usage: "how many requests wait, `N`"},
		&cli.StringFlag{Name: "kv-memory", Category: categoryModel, DefaultText: "a quarter of the memory, or 80 % of what a GPU has free", Usage: "most memory for keys and values, `BYTES`, such as 4GiB"},
		&cli.StringSliceFlag{Name: "listen", Category: categoryServer, DefaultText: listen.DefaultAddress, Usage: "`ADDRESS` to listen at: HOST:PORT, unix:PATH, unix: for the user's own socket, or fd:NAME for one that systemd or launchd hands over (repeatable)"},
		&cli.StringSliceFlag{Name: "api-key", Category: categoryServer, EnvVars: []string{"WINDROW_API_KEY"}, Usage: "let in who brings this `KEY` (repeatable)"},
		&cli.StringFlag{Name: "api-key-file", Category: categoryServer, Usage: "`FILE` of keys: lines of NAME:SHA256"},
		&cli.StringFlag{Name: "tls-cert", Category: categoryServer, Usage: "certificates for TLS, in PEM, `FILE`"},
		&cli.StringFlag{Name: "tls-key", Category: categoryServer, Usage: "the certificate's private key, in PEM, `FILE`"},
		&cli.BoolFlag{Name: "insecure", Category: categoryServer, Usage: "listen at other addresses of this machine without keys or without TLS"},
		&cli.StringSliceFlag{Name: "host", Category: categoryServer, Usage: "`NAME` by which clients may call the server, besides localhost and addresses (repeatable)"},
		&cli.BoolFlag{Name: "no-ui", Category: categoryServer, Usage: "leave out the web page"},
		&cli.BoolFlag{Name: "any-model", Category: categoryServer, Usage: "answer whatever model a request asks for"},
		&cli.BoolFlag{Name: "strict-fields", Category: categoryServer, Usage: "refuse fields that are not known"},
		&cli.BoolFlag{Name: "open-metrics", Category: categoryServer, Usage: "show /metrics, /props and /slots without a key"},
		&cli.BoolFlag{Name: "share", Category: categoryServer, Usage: "give the models of the cache, as pull has verified them, to windrow pull --from of those who bring a key"},
		&cli.BoolFlag{Name: "share-gated", Category: categoryServer, Usage: "with --share: also those that the Hub gives to some alone"},
		&cli.DurationFlag{Name: "drain", Category: categoryServer, Value: 30 * time.Second, Usage: "`TIME` that running requests get at the end"},
	}, sessionFlags())
}

func serveCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "serve",
		Usage: "answer requests of the OpenAI API over HTTP",
		Description: "Opens a model, listens, and answers until it is interrupted; then running requests get the time of --drain.\n" +
			"Other machines can connect only where there are keys and TLS. SIGHUP reads keys and certificates anew.",
		Flags:  serveFlags(),
		Action: serve,
	}, `windrow serve`, `windrow serve --model ~/models/Qwen3-8B --listen 0.0.0.0:8484 --api-key-file keys --tls-cert cert.pem --tls-key key.pem`)
}

// maxSequences bounds --sequences and --queue, far beyond what a machine runs.
const maxSequences = 1 << 16

func serve(c *cli.Context) error {
	plan, err := parseServe(c)
	if err != nil {
		return err
	}
	// Before a model is opened: an address in use is said at once.
	listeners, err := plan.listen()
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	sources, err := plan.sources(c)
	if err != nil {
		return err
	}
	pool := server.NewPool(plan.pool, sources...)
	defer pool.Close()
	s := server.NewOf(pool, plan.options)
	ctx, stop := context.WithCancel(c.Context)
	defer stop()
	ended := make(chan error, 1)
	// Requests that come while the model is loaded wait for it.
	go func() { ended <- s.Serve(ctx, c.Duration("drain"), listeners...) }()
	if err := pool.Load(ctx); err != nil {
		stop()
		serveErr := <-ended
		if c.Context.Err() != nil {
			return serveErr // it was to end before it was ready
		}
		return err
	}
	for _, l := range listeners {
		fmt.Fprintf(c.App.ErrWriter, "windrow: %s listens at %s\n", plan.names(), plan.where(l))
		if a, ok := l.Addr().(*net.TCPAddr); ok && !plan.options.NoUI {
			fmt.Fprintf(c.App.ErrWriter, "windrow: the page: %s\n", plan.pageAt(a))
		}
	}
	if plan.machine.BatchVariant {
		fmt.Fprintln(c.App.ErrWriter, "windrow: --batch-invariant=false: what a request gets may depend on those beside it")
	}
	told := plan.live(ctx, c, s)
	err = <-ended
	told()
	return err
}

// live is what goes on beside the requests: systemd hears that all is well, and SIGHUP
// is obeyed. The function that it returns waits until systemd has heard of an end that
// has begun: a server that does nothing ends sooner than that is said.
func (p *servePlan) live(ctx context.Context, c *cli.Context, s *server.Server) (told func()) {
	n := listen.NewNotifier()
	n.Ready(p.names())
	go n.Watch(ctx, func() bool { return s.Stuck() == nil })
	said := make(chan struct{})
	silence := context.AfterFunc(ctx, func() {
		defer close(said)
		n.Stopping()
	})
	told = func() {
		if !silence() {
			<-said
		}
	}
	if _, ok := terminal.Is(c.App.ErrWriter); ok {
		return told // SIGHUP says that the terminal is closed
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			n.Reloading()
			p.reload(c, s)
			n.Ready(p.names())
		}
	}()
	return told
}

// reload reads keys and certificates anew. What cannot be read stays as it was.
func (p *servePlan) reload(c *cli.Context, s *server.Server) {
	keys, err := readKeys(c)
	if err == nil && p.certificate != nil {
		err = p.certificate.Reload()
	}
	if err != nil {
		p.options.Log.Error("not reloaded: keys and certificate stay as they were", "error", err.Error())
		return
	}
	s.SetKeys(keys)
	p.options.Log.Info("reloaded")
}

// listen listens at all addresses, or at none.
func (p *servePlan) listen() (list []net.Listener, err error) {
	for _, a := range p.addresses {
		some, err := a.Listen()
		if err == nil {
			list = append(list, some...)
			for _, l := range some {
				if err == nil && !listen.PrivateAddr(l.Addr()) {
					err = p.exposed(a.String() + " (" + l.Addr().String() + ")")
				}
			}
		}
		if err != nil {
			closeAll(list)
			return nil, err
		}
	}
	return list, nil
}

// exposed returns an error where others can connect that nothing keeps out.
func (p *servePlan) exposed(address string) error {
	lacks := ""
	switch {
	case p.insecure:
	case p.options.Keys == nil && p.certificate == nil:
		lacks = "--api-key-file, and --tls-cert with --tls-key"
	case p.options.Keys == nil:
		lacks = "--api-key-file"
	case p.certificate == nil:
		lacks = "--tls-cert with --tls-key"
	}
	if lacks == "" {
		return nil
	}
	return usagef("--listen %s: others can connect there: give %s, or --insecure", address, lacks)
}

func closeAll(list []net.Listener) {
	for _, l := range list {
		l.Close()
	}
}

// where is a listener's address as a client writes it.
func (p *servePlan) where(l net.Listener) string {
	a := l.Addr()
	switch {
	case a.Network() == "unix":
		return "unix:" + a.String()
	case p.certificate != nil:
		return "https://" + a.String()
	}
	return "http://" + a.String()
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

// pageAt is where a browser on this machine finds the page.
func (p *servePlan) pageAt(a *net.TCPAddr) string {
	host, scheme := a.IP.String(), "http"
	if a.IP.IsUnspecified() {
		host = "localhost"
	}
	if p.certificate != nil {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(a.Port)) + "/"
}
