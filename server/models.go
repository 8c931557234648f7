package server

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// modelObject is a model as the API lists it.
type modelObject struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"`
}

func objectOf(m Source) modelObject {
	return modelObject{m.Name, "model", m.Created.Unix(), "windrow", m.Context}
}

// anthropicModel is a model as Anthropic's API lists it.
type anthropicModel struct {
	Type           string `json:"type"`
	ID             string `json:"id"`
	DisplayName    string `json:"display_name"`
	CreatedAt      string `json:"created_at"`
	MaxInputTokens int    `json:"max_input_tokens"`
}

func anthropicModelOf(m Source) anthropicModel {
	return anthropicModel{"model", m.Name, m.Name, m.Created.UTC().Format(time.RFC3339), m.Context}
}

// anthropicModels is a page of them.
type anthropicModels struct {
	Data    []anthropicModel `json:"data"`
	HasMore bool             `json:"has_more"`
	FirstID *string          `json:"first_id"`
	LastID  *string          `json:"last_id"`
}

// anthropicPage are the models in the order of the list: at most limit of them, behind
// one or, counted from the end, before one.
func (s *Server) anthropicPage(q url.Values) (p anthropicModels, err error) {
	limit, p := 20, anthropicModels{Data: []anthropicModel{}}
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > 1000 {
			return p, badValue("limit", "want a number from 1 to 1000")
		}
	}
	var list []anthropicModel
	for _, m := range s.pool.Standings() {
		list = append(list, anthropicModelOf(m.Source))
	}
	place := func(name string) (int, error) {
		i := slices.IndexFunc(list, func(m anthropicModel) bool { return m.ID == q.Get(name) })
		if i < 0 {
			return 0, badValue(name, "there is no model of that id")
		}
		return i, nil
	}
	switch {
	case q.Has("after_id") && q.Has("before_id"):
		return p, badValue("after_id", "want no before_id beside it")
	case q.Has("after_id"):
		i, err := place("after_id")
		if err != nil {
			return p, err
		}
		list = list[i+1:]
	case q.Has("before_id"):
		i, err := place("before_id")
		if err != nil {
			return p, err
		}
		p.HasMore = i > limit
		list = list[max(0, i-limit):i]
	}
	if len(list) > limit {
		list, p.HasMore = list[:limit], true
	}
	if p.Data = append(p.Data, list...); len(list) > 0 {
		p.FirstID, p.LastID = &list[0].ID, &list[len(list)-1].ID
	}
	return p, nil
}

// models answers GET /v1/models, in the form of the API that the client speaks.
func (s *Server) models(w http.ResponseWriter, r *http.Request) error {
	if speaks(r) == anthropic {
		page, err := s.anthropicPage(r.URL.Query())
		if err == nil {
			writeJSON(w, http.StatusOK, page)
		}
		return err
	}
	var list []modelObject
	for _, m := range s.pool.Standings() {
		list = append(list, objectOf(m.Source))
	}
	writeJSON(w, http.StatusOK, struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{"list", list})
	return nil
}

// oneModel answers GET /v1/models/NAME.
func (s *Server) oneModel(name string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		for _, m := range s.pool.Standings() {
			if m.Source.Name == name && speaks(r) == anthropic {
				writeJSON(w, http.StatusOK, anthropicModelOf(m.Source))
				return nil
			}
			if m.Source.Name == name {
				writeJSON(w, http.StatusOK, objectOf(m.Source))
				return nil
			}
		}
		return unknownModel(name)
	}
}

// take finds the model that a request names, or the first one for "", which stays
// loaded until the request has been answered. It may wait for the model.
func (s *Server) take(r *http.Request, name string) (*Model, error) {
	if s.o.AnyModel && s.pool.find(name) == nil {
		name = ""
	}
	m, release, err := s.pool.Take(r.Context(), name)
	if errors.Is(err, ErrUnknownModel) {
		return nil, unknownModel(name)
	}
	if err != nil {
		return nil, err
	}
	rec := recordOf(r)
	rec.model, rec.releases = m, append(rec.releases, release)
	return m, nil
}

func unknownModel(name string) *apiError {
	e := newError(http.StatusNotFound, typeNotFound, "model_not_found", "there is no model %q; GET /v1/models lists those that are", shortName(name))
	param := "model"
	e.Param = &param
	return e
}

// shortName is a client's string as it may stand in a message.
func shortName(s string) string {
	if len(s) > 100 {
		s = s[:100]
	}
	return url.PathEscape(s)
}
