package server

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrUnknownModel is a name that no model of a pool has.
var ErrUnknownModel = errors.New("there is no such model")

// NotLoadedError is a request that waited too long for its model.
type NotLoadedError struct {
	Model   string
	Loading bool // it is being loaded; else requests of another model keep it waiting
	Waited  time.Duration
}

func (e *NotLoadedError) Error() string {
	if e.Loading {
		return fmt.Sprintf("model %s is still being loaded, after %d s", shortName(e.Model), int(e.Waited.Seconds()))
	}
	return fmt.Sprintf("model %s was not loaded within %d s: another one is in use", shortName(e.Model), int(e.Waited.Seconds()))
}

// LoadError is a model that cannot be loaded.
type LoadError struct {
	Model string
	Err   error
}

func (e *LoadError) Error() string { return fmt.Sprintf("model %s: %v", e.Model, e.Err) }
func (e *LoadError) Unwrap() error { return e.Err }

// poolError says a pool's error in the API's words; nil: it is another's.
func poolError(err error) *apiError {
	var (
		late   *NotLoadedError
		failed *LoadError
	)
	switch {
	case errors.As(err, &late):
		code := "queue_timeout"
		if late.Loading {
			code = "loading"
		}
		e := newError(http.StatusServiceUnavailable, typeServer, code, "%v", late)
		e.retryAfter = 5 * time.Second
		return e
	case errors.As(err, &failed):
		// What is wrong may name files, which are the log's.
		return newError(http.StatusInternalServerError, typeServer, "model_not_loaded", "model %s could not be loaded: the server's log says why", shortName(failed.Model))
	}
	return nil
}
