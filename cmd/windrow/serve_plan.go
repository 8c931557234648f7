package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"windrow/decoder"
	"windrow/engine"
	"windrow/internal/terminal"
	"windrow/listen"
	"windrow/schedule"
	"windrow/server"
)

// servePlan is what the flags of serve come to.
type servePlan struct {
	models      []namedModel
	machine     engine.Options
	scheduling  schedule.Options
	pool        server.PoolOptions
	options     server.Options
	addresses   []listen.Address
	certificate *server.Certificate // nil: no TLS
	insecure    bool
	sessions    sessionPlan
	drafts      draftPlan
}

// draftPlan is who drafts where requests do not say.
type draftPlan struct {
	choice  decoder.DraftChoice
	most    int
	path    string // of the smaller model; "": none drafts
	machine engine.Options
}

// namedModel is a model that is served.
type namedModel struct{ name, path string }

// maxModels bounds --model: each takes some metrics.
const maxModels = 64

// parseServe reads the flags.
func parseServe(c *cli.Context) (p *servePlan, err error) {
	if c.Args().Present() {
		return nil, usagef("takes no arguments, got %q: the model is --model", c.Args().First())
	}
	p = &servePlan{insecure: c.Bool("insecure")}
	if p.models, err = parseModels(c.StringSlice("model"), c.String("model-name")); err != nil {
		return nil, err
	}
	if p.machine, err = parseMachine(c); err != nil {
		return nil, err
	}
	if p.drafts, err = parseServeDrafts(c, p.machine, len(p.models)); err != nil {
		return nil, err
	}
	p.machine.NeedHead = p.drafts.choice == decoder.DraftMTP
	for _, name := range []string{"sequences", "queue"} {
		if n := c.Int(name); n < 1 || n > maxSequences {
			return nil, usagef("--%s %d: want 1 to %d", name, n, maxSequences)
		}
	}
	p.scheduling = schedule.Options{Sequences: c.Int("sequences"), Queue: c.Int("queue")}
	if p.scheduling.KVMemory, err = parseBytes("kv-memory", c.String("kv-memory")); err != nil {
		return nil, err
	}
	if p.sessions, err = parseSessions(c, &p.scheduling); err != nil {
		return nil, err
	}
	for _, name := range []string{"drain", "idle-unload"} {
		if d := c.Duration(name); d < 0 {
			return nil, usagef("--%s %s: want 0 or more", name, d)
		}
	}
	p.pool = server.PoolOptions{Loaded: c.Int("models-max"), Queue: c.Int("queue"), IdleUnload: c.Duration("idle-unload")}
	if p.pool.Loaded < 1 {
		return nil, usagef("--models-max %d: want 1 or more", p.pool.Loaded)
	}
	p.options = server.Options{
		Hosts: c.StringSlice("host"), AnyModel: c.Bool("any-model"), StrictFields: c.Bool("strict-fields"), OpenMetrics: c.Bool("open-metrics"), NoUI: c.Bool("no-ui"),
		Version: versionLine(), Seal: c.Bool("seal"),
	}
	if _, ok := terminal.Is(c.App.ErrWriter); ok {
		p.options.Log = slog.New(slog.NewTextHandler(c.App.ErrWriter, nil))
	} else {
		p.options.Log = slog.New(slog.NewJSONHandler(c.App.ErrWriter, nil))
	}
	if len(p.models) > 1 || p.pool.IdleUnload > 0 {
		p.pool.Log = p.options.Log
	}
	if p.options.Keys, err = readKeys(c); err != nil {
		return nil, err
	}
	if p.options.Share, err = readShare(c, p.options.Keys); err != nil {
		return nil, err
	}
	if p.certificate, err = readCertificate(c); err != nil {
		return nil, err
	}
	if p.certificate != nil {
		p.options.TLS = p.certificate.Config()
	}
	return p, p.parseListen(c)
}

// parseListen reads --listen.
func (p *servePlan) parseListen(c *cli.Context) error {
	addresses := c.StringSlice("listen")
	if len(addresses) == 0 {
		addresses = []string{listen.DefaultAddress}
	}
	for _, s := range addresses {
		a, err := listen.Parse(s)
		if err != nil {
			return usagef("--listen %w", err)
		}
		if !a.Private() {
			if err := p.exposed(s); err != nil {
				return err
			}
		}
		if a.Kind == listen.Inherited && !c.IsSet("idle-unload") {
			p.pool.IdleUnload, p.pool.Log = 10*time.Minute, p.options.Log
		}
		p.addresses = append(p.addresses, a)
	}
	return nil
}

var modelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$`)

// parseModels reads --model: paths, of which each may have a name before it.
func parseModels(given []string, only string) (list []namedModel, err error) {
	if len(given) == 0 {
		given = []string{""}
	}
	if only != "" && len(given) > 1 {
		return nil, usagef("--model-name %s: names one model, and there are %d: want --model NAME=PATH", only, len(given))
	}
	if len(given) > maxModels {
		return nil, usagef("--model: %d of them, want at most %d", len(given), maxModels)
	}
	seen := map[string]string{}
	for _, s := range given {
		m := namedModel{path: s}
		if name, path, ok := strings.Cut(s, "="); ok && modelName.MatchString(name) {
			if _, err := os.Lstat(s); err != nil { // a path may hold a =
				m = namedModel{name, path}
			}
		}
		if m.name == "" {
			m.name = engine.ModelName(m.path)
		}
		if only != "" {
			m.name = only
		}
		if other, twice := seen[m.name]; twice {
			return nil, usagef("--model: %s and %s are both called %s: want --model NAME=PATH", other, s, m.name)
		}
		seen[m.name] = s
		list = append(list, m)
	}
	return list, nil
}

// names are the models' names, the first before all.
func (p *servePlan) names() string {
	var list []string
	for _, m := range p.models {
		list = append(list, m.name)
	}
	return strings.Join(list, ", ")
}

// sources are the models as a pool opens them. Those that are opened later are looked
// at now: a wrong path is said at the start.
func (p *servePlan) sources(c *cli.Context) (list []server.Source, err error) {
	now := time.Now()
	for i, m := range p.models {
		s := server.Source{Name: m.name, Created: now}
		if i > 0 {
			files, err := engine.OpenCheckpoint(c.Context, m.path)
			if err != nil {
				return nil, fmt.Errorf("--model %s: %w", m.name, err)
			}
			s.Context = files.Config().MaxPositions
			files.Close()
		}
		s.Open = func(ctx context.Context, progress func(float64)) (*server.Loaded, error) {
			return p.open(ctx, m, progress)
		}
		list = append(list, s)
	}
	return list, nil
}

// open loads a model and starts its scheduler.
func (p *servePlan) open(ctx context.Context, m namedModel, progress func(float64)) (*server.Loaded, error) {
	machine := p.machine
	bar := machine.Progress
	machine.Progress = func(done, total int64) {
		progress(float64(done) / float64(max(total, 1)))
		bar(done, total)
	}
	e, err := engine.Open(ctx, m.path, machine)
	if err != nil {
		return nil, err
	}
	drafter, err := p.drafts.open(ctx, e)
	if err != nil {
		e.Close()
		return nil, err
	}
	closeEngines := func() {
		e.Close()
		if drafter != nil {
			drafter.Close()
		}
	}
	scheduling := p.scheduling
	if scheduling.KVMemory == 0 {
		scheduling.KVMemory = e.KVRoom(ctx)
		if drafter != nil && drafter.BackendName() == e.BackendName() { // of the same memory
			scheduling.KVMemory = int64(float64(scheduling.KVMemory) / (1 + kvShare(drafter, e)))
		}
	}
	scheduling.KVMemory /= int64(p.pool.Loaded) // each has its share
	if drafter != nil {
		drafter.Budget().Limit(int64(float64(scheduling.KVMemory) * kvShare(drafter, e)))
	}
	kept, err := p.sessions.open(p, m.name, e, &scheduling)
	if err != nil {
		closeEngines()
		return nil, err
	}
	s := schedule.New(e, scheduling)
	measuring, stop := context.WithCancel(context.Background())
	x := server.ForEngine(measuring, e, s, versionLine())
	x.Name, x.NoThink, x.Sequences, x.BatchInvariant = m.name, machine.NoThink, scheduling.Sequences, !machine.BatchVariant
	x.Machine, x.Draft, x.Drafts = machineLine(machine), p.drafts.choice, p.drafts.most
	return &server.Loaded{Model: x, Close: func() {
		stop()
		kept.save(s)
		s.Close()
		kept.close()
		closeEngines()
	}}, nil
}

// kvShare is what keys and values of a token take of a drafter, in those of the model.
func kvShare(drafter, e *engine.Engine) float64 {
	return float64(drafter.KVPageBytes()) / float64(e.KVPageBytes())
}

// parseServeDrafts reads who drafts for a number of models.
func parseServeDrafts(c *cli.Context, machine engine.Options, models int) (p draftPlan, err error) {
	var o decoder.Options
	if err := setDraft(c, &o); err != nil {
		return p, err
	}
	p = draftPlan{choice: o.Draft, most: o.Drafts}
	if o.Draft == decoder.DraftModel {
		if models > 1 {
			return p, usagef("--draft %s: drafts for one model, and there are %d", c.String("draft"), models)
		}
		_, p.path, _ = parseDraft(c.String("draft"))
		p.machine = draftMachine(machine, c.String("draft-backend"))
	}
	return p, nil
}

// open opens the smaller model, if there is one, and says where the model cannot be drafted
// for as was asked.
func (p *draftPlan) open(ctx context.Context, e *engine.Engine) (drafter *engine.Engine, err error) {
	if p.path != "" {
		if drafter, err = draftWith(ctx, e, p.path, p.machine); err != nil {
			return nil, err
		}
	}
	if p.choice == "" || p.choice == decoder.DraftNone {
		return drafter, nil
	}
	if err := e.Check(e.Defaults(decoder.Options{Mode: decoder.Verified, Draft: p.choice})); err != nil {
		if drafter != nil {
			drafter.Close()
		}
		return nil, usagef("--%w", err) // it begins with who was to draft
	}
	return drafter, nil
}

// machineLine says where and in which arithmetic a model is asked to run, for programs
// that ask whether another one would give the same.
func machineLine(o engine.Options) string {
	mask := "config"
	if o.MaskID != nil {
		mask = fmt.Sprint(*o.MaskID)
	}
	backend := o.Backend
	if backend == "" {
		backend = engine.Auto
	}
	keep := o.KVKeep
	if o.KVWindow == 0 {
		keep = 0
	}
	line := fmt.Sprintf("backend=%s gpus=%d kernels=%s exact=%t kv=%s kv-window=%d/%d invariant=%t mask=%s",
		backend, max(o.GPUs, 1), o.Kernels, o.Exact, o.KVType(), o.KVWindow, keep, !o.BatchVariant, mask)
	if o.HostLayers != 0 {
		line += fmt.Sprintf(" host-layers=%d", o.HostLayers)
	}
	return line
}
