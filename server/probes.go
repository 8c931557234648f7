package server

import (
	"cmp"
	"net/http"
	"os"
	"time"

	"windrow/schedule"
)

// stuckTime is how long nothing may come of requests before the server is not ready.
const stuckTime = 10 * time.Second

// root answers GET / where it is no browser that asks: clients want to know whether
// somebody is there.
func (s *Server) root(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Vary", "Accept")
	writeJSON(w, http.StatusOK, map[string]string{"server": "windrow", "version": s.o.Version, "model": s.pool.entries[0].Name})
	return nil
}

// health answers GET /health: the process is there. At a Unix socket it says its number,
// for those who want to end it.
func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	reply, status := Health{Status: "ok"}, http.StatusOK
	if r.Context().Value(privateKey{}) != nil {
		reply.PID, reply.Model = os.Getpid(), s.pool.entries[0].Name
	}
	if progress, yes := s.pool.starting(); yes {
		reply.Status, reply.Progress, status = "loading", &progress, http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, status, reply)
	return nil
}

// ready answers GET /ready: requests are taken, and those that are there get on.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	if err := s.Ready(); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	return nil
}

// Ready returns why requests had better go elsewhere: the server goes down, its first
// model is being loaded, or requests wait and nothing comes of them (see Stuck).
func (s *Server) Ready() error {
	if s.pool.isDraining() {
		return drainingError()
	}
	if progress, yes := s.pool.starting(); yes {
		e := newError(http.StatusServiceUnavailable, typeServer, "loading", "the model is being loaded: %.0f %%", 100*progress)
		e.retryAfter = time.Second
		return e
	}
	return s.Stuck()
}

// Stuck returns an error where requests wait, and no forward has ended for 10 seconds.
func (s *Server) Stuck() error {
	for _, m := range s.pool.Standings() {
		if m.Model == nil || m.State.Running+m.State.Waiting == 0 {
			continue
		}
		if still := m.Model.still(m.State); still > stuckTime {
			return newError(http.StatusServiceUnavailable, typeServer, "stuck", "requests wait, and no forward has ended for %d s", int(still.Seconds()))
		}
	}
	return nil
}

// still is for how long no forward has ended, since somebody has waited for one.
func (m *Model) still(st schedule.State) time.Duration {
	since := time.Unix(0, m.busySince.Load())
	if st.LastForward.After(since) {
		since = st.LastForward
	}
	return time.Since(since)
}

// props answers GET /props: what is served, and what it promises. ?model=NAME asks of
// another model than the first. Nothing is loaded for it.
func (s *Server) props(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("model")
	e := s.pool.find(name)
	if e == nil {
		return unknownModel(name)
	}
	var reply Props
	for _, m := range s.pool.Standings() {
		if m.Source.Name != e.Name {
			continue
		}
		reply = Props{Model: e.Name, Context: m.Source.Context, Version: s.o.Version, State: m.Phase}
		if m := m.Model; m != nil {
			reply.Context, reply.TotalSlots, reply.ChatTemplate = m.Context, m.Sequences, m.Tokenizer.ChatTemplate()
			reply.Backend, reply.Arithmetic, reply.BatchInvariant = m.Backend, m.Arithmetic, m.BatchInvariant
			reply.SystemFingerprint, reply.Version = m.Fingerprint, cmp.Or(m.Version, s.o.Version)
			reply.Mode = string(m.Mode)
			reply.Weights, reply.Machine, reply.NoThink, reply.MaxTokens = m.Weights, m.Machine, m.NoThink, m.MaxTokens
		}
	}
	writeJSON(w, http.StatusOK, reply)
	return nil
}

// slots answers GET /slots: what the schedulers are at.
func (s *Server) slots(w http.ResponseWriter, r *http.Request) error {
	reply := Slots{Requests: []SlotRequest{}}
	for _, m := range s.pool.Standings() {
		st := m.State
		x := ModelSlots{Model: m.Source.Name, State: m.Phase, Requests: m.Busy, Running: st.Running, Waiting: st.Waiting, Prefixes: st.Prefixes,
			MemoryUsed: st.MemoryUsed, MemoryLimit: st.MemoryLimit, TokensPerSecond: st.TokensPerSecond,
			PromptTokens: st.PromptTokens, CachedTokens: st.CachedTokens, Tokens: st.Tokens, Forwards: st.Forwards, Rows: st.Rows, Preemptions: st.Preemptions}
		if m.Phase == string(loading) {
			x.Progress = m.Progress
		}
		if m.Model != nil {
			x.Total, x.WeightBytes = m.Model.Sequences, m.Model.WeightBytes
			if m.Model.PageBytes > 0 {
				x.Pages, x.MostPages = st.MemoryUsed/m.Model.PageBytes, st.MemoryLimit/m.Model.PageBytes
			}
		}
		for _, q := range m.Requests {
			reply.Requests = append(reply.Requests, SlotRequest{q.Name, m.Source.Name, q.Mode, q.Phase, q.Prompt, q.Tokens, q.Rows})
		}
		reply.add(x)
	}
	writeJSON(w, http.StatusOK, reply)
	return nil
}

// usedMemory is the part of the memory for keys and values that is used, 0 where there
// is no limit.
func usedMemory(st schedule.State) float64 {
	if st.MemoryLimit <= 0 {
		return 0
	}
	return float64(st.MemoryUsed) / float64(st.MemoryLimit)
}
