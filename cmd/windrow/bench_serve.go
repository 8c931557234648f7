package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"windrow/bench"
	"windrow/decoder"
	"windrow/engine"
	"windrow/schedule"
	"windrow/server"
	"windrow/synthetic"
)

func benchServeCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "serve",
		Usage: "measure a server under load: this one's, or any of the OpenAI API",
		Description: "Clients ask for completions and read the streams. Without --url a model is served in this process, through a\n" +
			"socket on the loopback. docs/serving-benchmarks.md says what the figures mean.",
		Flags: slices.Concat(modelFlags(), shapeFlags(), []cli.Flag{
			&cli.IntFlag{Name: "sequences", Category: categoryModel, Value: 32, Usage: "how many requests run at once, `N`"},
			&cli.StringFlag{Name: "url", Category: categoryServer, Usage: "measure the server at `URL`, such as http://127.0.0.1:8484"},
			&cli.StringFlag{Name: "api-key", Category: categoryServer, EnvVars: []string{"WINDROW_API_KEY"}, Usage: "`KEY` for --url"},
			&cli.StringFlag{Name: "model-name", Category: categoryServer, Usage: "`NAME` of the model for --url, where it wants one; several, as A,B, are asked for in turn"},
			&cli.IntFlag{Name: "swap-every", Category: categoryServer, Value: 8, Usage: "`N` requests to each of several --model-name before the next one"},
			&cli.StringFlag{Name: "clients", Category: categoryLoad, Value: "1,8,32", Usage: "`NUMBERS` of clients, each asking again when it is answered"},
			&cli.StringFlag{Name: "rate", Category: categoryLoad, Usage: "also `RATES` of requests at random times: a number a second, or such as 50% of what the most clients had answered"},
			&cli.IntFlag{Name: "requests", Category: categoryLoad, DefaultText: "four a client, at least 8", Usage: "`N` requests a level"},
			&cli.IntFlag{Name: "prompt", Category: categoryLoad, Value: 512, Usage: "`TOKENS` of a prompt"},
			&cli.IntFlag{Name: "shared", Category: categoryLoad, Usage: "`TOKENS` of --prompt that all prompts begin with, cached before a level begins"},
			&cli.StringFlag{Name: "schema", Category: categoryLoad, Usage: "hold answers to the JSON schema in `FILE`; 'text' is a string as long as --tokens allows"},
			&cli.IntFlag{Name: "tokens", Category: categoryLoad, Value: 128, Usage: "`TOKENS` to generate"},
			&cli.BoolFlag{Name: "text", Category: categoryLoad, Usage: "send prompts as text, not as token ids"},
			&cli.StringFlag{Name: "data", Category: categoryLoad, Usage: "ask the questions of `NAME` in turn instead of random prompts: gsm8k, tinygsm or a JSONL file"},
			&cli.IntFlag{Name: "window", Category: categoryLoad, DefaultText: "the server's choice", Usage: "`N` slots of a window to ask for"},
			&cli.StringFlag{Name: "mode", Category: categoryLoad, DefaultText: "the server's choice", Usage: "`MODE` to ask for: ar or verified"},
			&cli.StringFlag{Name: "draft", Category: categoryLoad, DefaultText: "the server's choice", Usage: "`WHO` drafts in verified: auto, mask, lookup, mtp, model (that of the server) or none"},
			&cli.Uint64Flag{Name: "seed", Category: categoryLoad, Value: 1, Usage: "`SEED` of the prompts"},
			&cli.IntFlag{Name: "reps", Category: categoryOutput, Value: 1, Usage: "`N` repetitions"},
			&cli.DurationFlag{Name: "goodput-ttft", Category: categoryOutput, Value: 2 * time.Second, Usage: "`TIME` to the first byte of a good answer"},
			&cli.DurationFlag{Name: "goodput-gap", Category: categoryOutput, Value: 100 * time.Millisecond, Usage: "mean `TIME` between tokens of a good answer"},
			&cli.DurationFlag{Name: "soak", Category: categoryLoad, Usage: "send everything that users may for this `TIME`, and check that memory does not grow"},
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"},
		}),
		Action: benchServe,
	}, "windrow bench serve --clients 1,8 --requests 16", "windrow bench serve --url http://127.0.0.1:8080 --prompt 512 --tokens 128 --rate 50%,80%", "windrow bench serve --data tinygsm --mode verified --tokens 200", "windrow bench serve --soak 30m")
}

const categoryLoad = "Load"

// shapeFlags are bench's.
func shapeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "shape", Category: categoryModel, Usage: "random weights in the shape of `NAME` instead of a model: " + strings.Join(synthetic.ShapeNames(), ", ")},
		&cli.StringFlag{Name: "dtype", Category: categoryModel, Value: "bf16", Usage: "with --shape: `TYPE` of the weights"},
	}
}

func benchServe(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("takes no arguments, got %q", c.Args().First())
	}
	load, err := parseLoad(c)
	if err != nil {
		return err
	}
	if c.Bool("text") && c.String("data") != "" {
		return usagef("--text: what --data asks is text by itself")
	}
	if load.Questions, err = questions(c, c.String("data"), 0); err != nil {
		return err
	}
	if load.Schema, err = benchSchema(c.String("schema")); err != nil {
		return err
	}
	own := load.URL == ""
	if own {
		s, err := openServed(c)
		if err != nil {
			return err
		}
		defer s.close()
		load.URL = s.url
	}
	if d := c.Duration("soak"); d > 0 {
		return benchSoak(c, load, d)
	}
	bar := newProgress(c.App.ErrWriter, "bench serve")
	r, err := load.Run(c.Context, bar.update)
	bar.finish()
	if err != nil {
		return err
	}
	if r.Model = load.Model; own {
		r.Model = c.String("model")
		if r.Model = engine.ModelName(r.Model); len(c.StringSlice("shape")) > 0 {
			r.Model = c.StringSlice("shape")[0] + " " + c.String("dtype")
		}
	}
	if c.Bool("json") {
		err = writeJSON(c.App.Writer, r)
	} else {
		err = r.Table(c.App.Writer)
	}
	switch {
	case err != nil:
		return err
	case r.Failed() > 0:
		if reason := r.Reason(); reason != "" {
			return fmt.Errorf("%d requests were not answered as they should be; the first: %s", r.Failed(), reason)
		}
		return fmt.Errorf("%d requests were not answered as they should be", r.Failed())
	case own && c.Bool("batch-invariant") && r.Different() > 0:
		return fmt.Errorf("%d texts are not what one client alone got: want equal ones", r.Different())
	}
	return nil
}

// longText is a schema of a string that --tokens ends: as many tokens as without one.
const longText = `{"type": "string", "minLength": 5000}`

// benchSchema reads --schema.
func benchSchema(name string) (json.RawMessage, error) {
	switch name {
	case "":
		return nil, nil
	case "text":
		return json.RawMessage(longText), nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, usagef("--schema %s: is not JSON", name)
	}
	return data, nil
}

// benchSoak runs the long test.
func benchSoak(c *cli.Context, load *bench.Load, d time.Duration) error {
	soak := &bench.Soak{URL: load.URL, Key: load.Key, Model: load.Model, Clients: slices.Max(load.Clients), Duration: d, Seed: load.Seed}
	bar := newProgress(c.App.ErrWriter, "soak")
	r, err := soak.Run(c.Context, bar.update)
	bar.finish()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = writeJSON(c.App.Writer, r)
	} else {
		err = r.Table(c.App.Writer)
	}
	if err == nil {
		err = r.Check()
	}
	return err
}

// parseLoad reads the flags of the load.
func parseLoad(c *cli.Context) (*bench.Load, error) {
	l := &bench.Load{
		URL: strings.TrimSuffix(strings.TrimSuffix(c.String("url"), "/"), "/v1"), Key: c.String("api-key"), Model: c.String("model-name"),
		Requests: c.Int("requests"), Repetitions: c.Int("reps"), Prompt: c.Int("prompt"), Shared: c.Int("shared"), Tokens: c.Int("tokens"), Words: c.Bool("text"), Window: c.Int("window"),
		Seed: c.Uint64("seed"), GoodTTFT: c.Duration("goodput-ttft"), GoodGap: c.Duration("goodput-gap"),
	}
	if l.URL != "" {
		u, err := url.Parse(l.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, usagef("--url %q: want http://HOST:PORT", c.String("url"))
		}
		for _, name := range []string{"model", "shape"} {
			if c.IsSet(name) {
				return nil, usagef("--%s: the server at --url has its own", name)
			}
		}
	}
	if names := strings.Split(l.Model, ","); len(names) > 1 {
		if l.URL == "" {
			return nil, usagef("--model-name %s: several are those of a server at --url", l.Model)
		}
		l.Models, l.SwapEvery = names, c.Int("swap-every")
	}
	var err error
	if l.Clients, err = parseSizes(c, "clients", 1); err != nil {
		return nil, err
	}
	if l.Rates, err = parseRates(c.String("rate")); err != nil {
		return nil, err
	}
	if len(l.Clients) == 0 {
		return nil, usagef("--clients %q: want numbers, such as 1,8", c.String("clients"))
	}
	if most := l.Clients[len(l.Clients)-1]; most > maxLoadClients {
		return nil, usagef("--clients %d: want at most %d", most, maxLoadClients)
	}
	if mode := c.String("mode"); mode != "" {
		m, err := parseMode(mode)
		if err != nil {
			return nil, err
		}
		l.Mode = string(m)
	}
	if draft := c.String("draft"); draft != "" {
		d, err := decoder.ParseDraft(draft)
		if err != nil || l.Mode == string(decoder.AR) || l.Mode == string(decoder.WeDLM) {
			return nil, usagef("--draft %q: want auto, mask, lookup, mtp, model or none, and mode verified", draft)
		}
		l.Draft = string(d)
	}
	for _, f := range []struct {
		name     string
		low, top int
	}{{"requests", 0, 1 << 24}, {"reps", 1, 1 << 16}, {"prompt", 2, 1 << 24}, {"tokens", 1, 1 << 24}, {"window", 0, 1 << 16}, {"shared", 0, 1 << 24}, {"swap-every", 1, 1 << 24}} {
		if n := c.Int(f.name); n < f.low || n > f.top {
			return nil, usagef("--%s %d: want %d to %d", f.name, n, f.low, f.top)
		}
	}
	if d := c.Duration("soak"); d < 0 || d > 0 && d < time.Second {
		return nil, usagef("--soak %s: want 1s or more", d)
	}
	return l, nil
}

// maxLoadClients bounds --clients: each is a connection.
const maxLoadClients = 4096

// parseRates reads such as "0.5,80%".
func parseRates(s string) (list []bench.Rate, err error) {
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		number, percent := strings.CutSuffix(part, "%")
		x, err := strconv.ParseFloat(number, 64)
		if err != nil || !(x > 0) || math.IsInf(x, 0) {
			return nil, usagef("--rate %q: want requests a second, or a share such as 50%%", part)
		}
		if percent {
			list = append(list, bench.Rate{Share: x / 100})
		} else {
			list = append(list, bench.Rate{PerSecond: x})
		}
	}
	return list, nil
}

// servedModel is a model that is served in this process.
type servedModel struct {
	url   string
	close func()
}

// openServed serves --model or --shape at a free port of the loopback.
func openServed(c *cli.Context) (*servedModel, error) {
	machine, err := parseMachine(c)
	if err != nil {
		return nil, err
	}
	if n := c.Int("sequences"); n < 1 || n > maxSequences {
		return nil, usagef("--sequences %d: want 1 to %d", n, maxSequences)
	}
	e, err := openBenchModel(c, machine, true)
	if err != nil {
		return nil, err
	}
	s := schedule.New(e, schedule.Options{Sequences: c.Int("sequences"), KVMemory: e.KVRoom(c.Context), Queue: maxLoadClients})
	ctx, stop := context.WithCancel(context.WithoutCancel(c.Context))
	end := func() { stop(); s.Close(); e.Close() }
	m := server.ForEngine(ctx, e, s, versionLine())
	m.Sequences, m.BatchInvariant = c.Int("sequences"), !machine.BatchVariant
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		end()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.New(m, server.Options{Log: slog.New(slog.DiscardHandler), Connections: maxLoadClients}).Serve(ctx, time.Second, l)
	}()
	return &servedModel{"http://" + l.Addr().String(), func() { stop(); <-ended; end() }}, nil
}
