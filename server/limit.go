package server

import (
	"net"
	"sync"
)

// limited is a listener of at most so many connections at a time: others wait to be
// accepted.
type limited struct {
	net.Listener
	room   chan struct{} // holds one for each connection
	closed chan struct{}
	once   sync.Once
}

func limit(l net.Listener, room chan struct{}) net.Listener {
	return &limited{Listener: l, room: room, closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &counted{Conn: c, room: l.room}, nil
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// counted is a connection that gives its place back.
type counted struct {
	net.Conn
	room chan struct{}
	once sync.Once
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.once.Do(func() { <-c.room })
	return c.Conn.Close()
}
