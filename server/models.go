package server

import (
	"errors"
	"net/http"
	"net/url"
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

// models answers GET /v1/models.
func (s *Server) models(w http.ResponseWriter, r *http.Request) error {
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
