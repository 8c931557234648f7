// Package listen is where a server listens: at addresses, at Unix sockets that its
// owner alone can connect to, at sockets that systemd or launchd opened for it; and what
// systemd is told of it.
package listen
