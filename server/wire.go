package server

import (
	"windrow/decoder"
	"windrow/schedule"
)

// What the probes answer, for programs that ask a server of ours.
type (
	// Health is GET /health.
	Health struct {
		Status   string   `json:"status"` // "ok", or "loading" with a Progress
		Progress *float64 `json:"progress,omitempty"`
		PID      int      `json:"pid,omitempty"`   // at a Unix socket
		Model    string   `json:"model,omitempty"` // the first, at a Unix socket
	}

	// Props is GET /props. Of a model that is not loaded only the first and last are
	// known.
	Props struct {
		Model             string `json:"model"`
		Context           int    `json:"n_ctx"`
		TotalSlots        int    `json:"total_slots"`
		ChatTemplate      string `json:"chat_template"`
		Backend           string `json:"backend"`
		Arithmetic        string `json:"arithmetic"`
		BatchInvariant    bool   `json:"batch_invariant"`
		SystemFingerprint string `json:"system_fingerprint"`
		Version           string `json:"version"`
		Weights           string `json:"weights"`
		Machine           string `json:"machine"`
		NoThink           bool   `json:"no_think"`
		MaxTokens         int    `json:"max_tokens"` // that the model suggests
		Mode              string `json:"mode"`       // of requests that do not say
		State             string `json:"state"`
	}

	// Slots is GET /slots: sums over all models, and each of them.
	Slots struct {
		Total           int           `json:"total"`
		Running         int           `json:"running"`
		Waiting         int           `json:"waiting"`
		Prefixes        int           `json:"prefixes"`
		MemoryUsed      int64         `json:"kv_memory_used"`
		MemoryLimit     int64         `json:"kv_memory_limit"`
		TokensPerSecond float64       `json:"tokens_per_second"`
		Requests        []SlotRequest `json:"requests"`
		Models          []ModelSlots  `json:"models"`
	}

	// SlotRequest is a request that runs or waits.
	SlotRequest struct {
		ID     string         `json:"id"`
		Model  string         `json:"model"`
		Mode   decoder.Mode   `json:"mode"`
		State  schedule.Phase `json:"state"`
		Prompt int            `json:"prompt"`
		Tokens int            `json:"tokens"`
		Rows   int            `json:"rows"`
	}

	// ModelSlots is one model of Slots.
	ModelSlots struct {
		Model           string  `json:"model"`
		State           string  `json:"state"` // unloaded, loading, loaded, draining or unloading
		Progress        float64 `json:"progress,omitempty"`
		Requests        int     `json:"requests"` // that have the model
		Total           int     `json:"total"`
		Running         int     `json:"running"`
		Waiting         int     `json:"waiting"`
		Prefixes        int     `json:"prefixes"`
		Pages           int64   `json:"kv_pages_used"` // of 64 tokens
		MostPages       int64   `json:"kv_pages_limit"`
		MemoryUsed      int64   `json:"kv_memory_used"`
		MemoryLimit     int64   `json:"kv_memory_limit"`
		WeightBytes     int64   `json:"weight_bytes"`
		TokensPerSecond float64 `json:"tokens_per_second"` // of prompts and answers, recently
		PromptTokens    int64   `json:"prompt_tokens_total"`
		CachedTokens    int64   `json:"cached_tokens_total"`
		Tokens          int64   `json:"generated_tokens_total"`
		Forwards        int64   `json:"forwards_total"`
		Rows            int64   `json:"rows_total"`
		Preemptions     int64   `json:"preemptions_total"`
	}
)

func (s *Slots) add(m ModelSlots) {
	s.Total += m.Total
	s.Running += m.Running
	s.Waiting += m.Waiting
	s.Prefixes += m.Prefixes
	s.MemoryUsed += m.MemoryUsed
	s.MemoryLimit += m.MemoryLimit
	s.TokensPerSecond += m.TokensPerSecond
	s.Models = append(s.Models, m)
}
