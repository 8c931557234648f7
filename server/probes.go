package server

import (
	"net/http"
	"time"

	"windrow/schedule"
)

// stuckTime is how long nothing may come of requests before the server is not ready.
const stuckTime = 10 * time.Second

// root answers GET /: clients ask it whether somebody is there.
func (s *Server) root(w http.ResponseWriter, r *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"server": "windrow", "version": s.model.Version, "model": s.model.Name})
	return nil
}

// health answers GET /health: the process is there.
func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

// ready answers GET /ready: requests are taken, and those that are there get on.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	st := s.model.Scheduler.State()
	switch {
	case s.draining.Load():
		return drainingError()
	case st.Running+st.Waiting > 0 && s.still(st) > stuckTime:
		return newError(http.StatusServiceUnavailable, typeServer, "stuck", "requests wait, and no forward has ended for %d s", int(s.still(st).Seconds()))
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	return nil
}

// still is for how long no forward has ended, since somebody has waited for one.
func (s *Server) still(st schedule.State) time.Duration {
	since := time.Unix(0, s.busySince.Load())
	if st.LastForward.After(since) {
		since = st.LastForward
	}
	return time.Since(since)
}

// props answers GET /props: what is served, and what it promises.
func (s *Server) props(w http.ResponseWriter, r *http.Request) error {
	m := s.model
	writeJSON(w, http.StatusOK, struct {
		Model             string `json:"model"`
		Context           int    `json:"n_ctx"`
		TotalSlots        int    `json:"total_slots"`
		ChatTemplate      string `json:"chat_template"`
		Backend           string `json:"backend"`
		Arithmetic        string `json:"arithmetic"`
		BatchInvariant    bool   `json:"batch_invariant"`
		SystemFingerprint string `json:"system_fingerprint"`
		Version           string `json:"version"`
	}{m.Name, m.Context, m.Sequences, m.Tokenizer.ChatTemplate(), m.Backend, m.Arithmetic, m.BatchInvariant, m.Fingerprint, m.Version})
	return nil
}

// slots answers GET /slots: what the scheduler is at.
func (s *Server) slots(w http.ResponseWriter, r *http.Request) error {
	st := s.model.Scheduler.State()
	writeJSON(w, http.StatusOK, struct {
		Total           int     `json:"total"`
		Running         int     `json:"running"`
		Waiting         int     `json:"waiting"`
		Prefixes        int     `json:"prefixes"`
		MemoryUsed      int64   `json:"kv_memory_used"`
		MemoryLimit     int64   `json:"kv_memory_limit"`
		TokensPerSecond float64 `json:"tokens_per_second"`
	}{s.model.Sequences, st.Running, st.Waiting, st.Prefixes, st.MemoryUsed, st.MemoryLimit, st.TokensPerSecond})
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
