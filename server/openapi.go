package server

import (
	_ "embed"
	"net/http"
	"strconv"
)

// openAPIFile describes the endpoints, their fields, errors and streams. The tests of the
// module clients compare it with requests and replies.
//
//go:embed openapi.json
var openAPIFile []byte

// openAPI answers GET /openapi.json.
func (s *Server) openAPI(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(openAPIFile)))
	w.Write(openAPIFile)
	return nil
}
