package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// The limits of connections.
const (
	headerTime  = 5 * time.Second
	idleTimeout = 2 * time.Minute
	maxHeader   = 32 << 10
)

// Serve answers at the listeners until ctx ends, and closes them. Then it takes no
// more requests, refuses those that wait, gives those that run the time of drain, and
// ends what is left. It returns an error only where a listener failed.
func (s *Server) Serve(ctx context.Context, drain time.Duration, listeners ...net.Listener) error {
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime, IdleTimeout: idleTimeout, MaxHeaderBytes: 2 * maxHeader,
		ConnContext: withPrivate, ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	room := make(chan struct{}, s.o.Connections)
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		unix := l.Addr().Network() == "unix"
		if l = limit(l, room); s.o.TLS != nil && !unix {
			l = tls.NewListener(l, s.o.TLS)
		}
		go func() { failed <- h.Serve(l) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	left, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.pool.Drain(left)
	}()
	if h.Shutdown(left) != nil {
		h.Close()
	}
	<-drained
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
