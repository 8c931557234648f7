package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"windrow/backend"
	"windrow/engine"
	"windrow/schedule"
	"windrow/server"
	"windrow/session"
)

const categorySessions = "Sessions"

// saveTime is how long conversations are saved at the end.
const saveTime = 30 * time.Second

func sessionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "session-dir", Category: categorySessions, Usage: "`FOLDER` where conversations are saved, to go on after a restart (none: they are not)"},
		&cli.StringFlag{Name: "session-disk", Category: categorySessions, Value: "16GiB", Usage: "most that they have on disk, `BYTES`; the oldest go first"},
		&cli.Float64Flag{Name: "cache-share", Category: categorySessions, Value: 0.5, Usage: "`PART` of the memory that one key's conversations may hold when others want it"},
		&cli.BoolFlag{Name: "seal", Category: categorySessions, Value: true, Usage: "compute ahead what a conversation's next turn begins with, while nobody waits"},
	}
}

// sessionPlan is where conversations are saved; without a folder nowhere.
type sessionPlan struct {
	folder string
	limit  int64 // bytes, of all models
}

// parseSessions reads the flags.
func parseSessions(c *cli.Context, o *schedule.Options) (p sessionPlan, err error) {
	p.folder = c.String("session-dir")
	if p.limit, err = parseBytes("session-disk", c.String("session-disk")); err != nil {
		return p, err
	}
	if o.CacheShare = c.Float64("cache-share"); !(o.CacheShare > 0 && o.CacheShare <= 1) {
		return p, usagef("--cache-share %v: want a number over 0, up to 1", o.CacheShare)
	}
	if c.IsSet("session-disk") && p.folder == "" {
		return p, usagef("--session-disk: wants --session-dir beside it")
	}
	return p, nil
}

// sessions are a server's conversations on disk, if it has some.
type sessions struct {
	store *session.Store
	log   *slog.Logger
}

// open opens the folder, where there is one, for an open model. Of several models each
// has a folder in it, and a part of the limit.
func (x sessionPlan) open(p *servePlan, model string, e *engine.Engine, o *schedule.Options) (sessions, error) {
	if x.folder == "" {
		return sessions{}, nil
	}
	folder, limit, log := x.folder, x.limit, p.options.Log
	states, copies, err := e.KeepsStates(context.Background())
	if err != nil {
		return sessions{}, err
	}
	if !copies {
		log.Warn("session", "what", fmt.Sprintf("%s has recurrent layers, whose states this device does not copy: its conversations are computed again after a restart", model))
		return sessions{}, nil
	}
	if n := int64(len(p.models)); n > 1 {
		folder, limit = filepath.Join(folder, url.PathEscape(model)), max(1, limit/n)
	}
	note := func(line string) { log.Warn("session", "what", line) }
	store, err := session.Open(folder, session.Options{
		Fingerprint: server.SessionFingerprint(e, versionLine()),
		PageTokens:  backend.PageTokens, PageBytes: e.KVExportedPage(), States: states, Limit: limit, Note: note,
	})
	if err != nil {
		return sessions{}, fmt.Errorf("--session-dir: %w", err)
	}
	o.Sessions, o.Note = store, note
	return sessions{store, log}, nil
}

// save saves what is in memory when the server has ended.
func (x sessions) save(s *schedule.Scheduler) {
	if x.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTime)
	defer cancel()
	if err := s.SaveSessions(ctx); err != nil {
		x.log.Warn("session", "what", fmt.Sprintf("not all sessions are saved: %v", err))
	}
}

func (x sessions) close() {
	if x.store != nil {
		x.store.Close()
	}
}
