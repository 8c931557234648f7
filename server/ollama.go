package server

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"windrow/answer"
)

// What editors ask of an ollama server before they use the chat API: which version it
// is, which models there are, and what those can do.

// ollamaVersion is a version of that server whose answers these are. Clients compare it:
// it must be numbers, and at least 0.6.4.
const ollamaVersion = "0.12.0"

type (
	ollamaModel struct {
		Name       string        `json:"name"`
		Model      string        `json:"model"`
		ModifiedAt string        `json:"modified_at"`
		Size       int64         `json:"size"`
		Digest     string        `json:"digest"`
		Details    ollamaDetails `json:"details"`
	}
	ollamaDetails struct {
		ParentModel       string   `json:"parent_model"`
		Format            string   `json:"format"`
		Family            string   `json:"family"`
		Families          []string `json:"families"`
		ParameterSize     string   `json:"parameter_size"`
		QuantizationLevel string   `json:"quantization_level"`
	}
	ollamaShow struct {
		Details      ollamaDetails  `json:"details"`
		ModelInfo    map[string]any `json:"model_info"`
		Template     string         `json:"template"`
		Capabilities []string       `json:"capabilities"`
		ModifiedAt   string         `json:"modified_at"`
	}
)

// ollamaFamily stands where an architecture's name does: keys begin with it.
const ollamaFamily = "windrow"

// ollamaAbout are the details of any model.
func ollamaAbout() ollamaDetails {
	return ollamaDetails{Format: ollamaFamily, Family: ollamaFamily, Families: []string{ollamaFamily}}
}

// ollamaVersion answers GET /api/version.
func (s *Server) ollamaVersion(w http.ResponseWriter, r *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"version": ollamaVersion})
	return nil
}

// ollamaTags answers GET /api/tags.
func (s *Server) ollamaTags(w http.ResponseWriter, r *http.Request) error {
	list := []ollamaModel{}
	for _, x := range s.pool.Standings() {
		m := x.Source
		list = append(list, ollamaModel{
			Name: m.Name, Model: m.Name, ModifiedAt: m.Created.Format(time.RFC3339), Details: ollamaAbout(),
			Digest: fmt.Sprintf("%x", sha256.Sum256([]byte(m.Name))), // a name: clients compare nothing with it
		})
	}
	writeJSON(w, http.StatusOK, map[string][]ollamaModel{"models": list})
	return nil
}

// ollamaShow answers POST /api/show: {model}, or {name} as older clients have it.
func (s *Server) ollamaShow(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r)
	if err != nil {
		return err
	}
	name, older := f.text("model"), f.text("name")
	if name == "" {
		name = older
	}
	if name == "" {
		f.bad("model", "is missing")
	}
	f.boolean("verbose")
	m, err := s.accept(w, r, f, name)
	if err != nil {
		return err
	}
	template := m.Tokenizer.ChatTemplate()
	writeJSON(w, http.StatusOK, ollamaShow{
		Details: ollamaAbout(), Template: template, Capabilities: capabilities(template), ModifiedAt: m.Created.Format(time.RFC3339),
		ModelInfo: map[string]any{"general.architecture": ollamaFamily, "general.basename": m.Name, ollamaFamily + ".context_length": m.Context},
	})
	return nil
}

// capabilities are what a model can do, as its template shows.
func capabilities(template string) []string {
	list := []string{"completion"}
	if answer.FormOf(template) != answer.FormNone {
		list = append(list, "tools")
	}
	if strings.Contains(template, answer.ThinkOpen) || strings.Contains(template, answer.ThinkClose) {
		list = append(list, "thinking")
	}
	return list
}
