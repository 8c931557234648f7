package server

import (
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

func (s *Server) modelObject() modelObject {
	return modelObject{s.model.Name, "model", s.model.Created.Unix(), "windrow", s.model.Context}
}

// models answers GET /v1/models.
func (s *Server) models(w http.ResponseWriter, r *http.Request) error {
	writeJSON(w, http.StatusOK, struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{"list", []modelObject{s.modelObject()}})
	return nil
}

// oneModel answers GET /v1/models/NAME.
func (s *Server) oneModel(name string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if name != s.model.Name {
			return unknownModel(name)
		}
		writeJSON(w, http.StatusOK, s.modelObject())
		return nil
	}
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
