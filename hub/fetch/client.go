package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// client asks one origin, and follows where it redirects to.
type client struct {
	base    *url.URL // the endpoint's address, without a final slash
	token   Token
	agent   string
	http    *http.Client
	proxied func(*http.Request) (*url.URL, error)
	// private is whether the endpoint itself is on this machine or a private network:
	// only then may it redirect to such addresses.
	private  atomic.Bool
	noFollow bool // redirects are refused
	dialer   *net.Dialer
	// plainToken sends the token without TLS, too: to a peer that was named so.
	plainToken bool
}

// The bounds of what a connection takes.
const (
	dialTime   = 15 * time.Second
	headerTime = 30 * time.Second
	maxHops    = 5
)

// parseEndpoint reads the address of a hub.
func parseEndpoint(s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(s, "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("endpoint %.100q: want https://HOST", s)
	}
	return u, nil
}

// CheckEndpoint reports whether an address can be Options.Endpoint; "" can.
func CheckEndpoint(address string) error {
	if address == "" {
		return nil
	}
	_, err := parseEndpoint(address)
	return err
}

// newClient makes a client. roots, where not nil, are the certificates that are trusted.
func newClient(base *url.URL, token Token, agent string, connections int, roots *x509.CertPool) *client {
	c := &client{base: base, token: token, agent: agent, proxied: http.ProxyFromEnvironment}
	c.private.Store(privateHost(base.Hostname()))
	c.dialer = &net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}
	transport := &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) { return c.proxied(r) },
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			d := *c.dialer
			if where, _ := ctx.Value(hopKey{}).(hop); where.foreign && !where.proxied && !c.private.Load() {
				d.Control = func(_, address string, _ syscall.RawConn) error {
					if host, _, err := net.SplitHostPort(address); err == nil && privateHost(host) {
						return permanent("%s is an address of this machine or a private network: the endpoint may not redirect there", host)
					}
					return nil
				}
				return d.DialContext(ctx, network, address)
			} else if conn, err := d.DialContext(ctx, network, address); err == nil {
				if host, _, err := net.SplitHostPort(conn.RemoteAddr().String()); err == nil && !where.foreign && !where.proxied && privateHost(host) {
					c.private.Store(true)
				}
				return conn, nil
			} else {
				return nil, err
			}
		},
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		// With HTTP/2 all ranges would share one connection, and its window.
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
		TLSHandshakeTimeout:    dialTime,
		ResponseHeaderTimeout:  headerTime,
		MaxIdleConnsPerHost:    connections + 1,
		MaxConnsPerHost:        connections + 2,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize:         64 << 10,
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c
}

func (c *client) close() { c.http.CloseIdleConnections() }

// hop says of a request's address, to the dialer, whether it is another origin than the
// endpoint, and whether a proxy dials it.
type hop struct{ foreign, proxied bool }

type hopKey struct{}

// privateHost reports whether a host is one of this machine or of a private network, as
// far as its name says.
func privateHost(host string) bool {
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	a = a.Unmap()
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast()
}

// origin is what a token belongs to: scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// where names an address for people: no query, which may hold a signature.
func where(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// get asks for an address; the response's body must be closed. Redirects are followed:
// see is given the headers of each answer that is one, and of the last. at is the address
// that answered in the end.
func (c *client) get(ctx context.Context, u *url.URL, header http.Header, see func(http.Header) error) (resp *http.Response, at *url.URL, err error) {
	for hops := 0; ; hops++ {
		foreign := origin(u) != origin(c.base)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, nil, permanent("%s: no address that can be asked", where(u))
		}
		for name, values := range header {
			r.Header[name] = values
		}
		r.Header.Set("User-Agent", c.agent)
		r.Header.Set("Accept-Encoding", "identity")
		if !foreign && c.token.secret != "" && (u.Scheme == "https" || c.plainToken) {
			r.Header.Set("Authorization", "Bearer "+c.token.secret)
		}
		proxy, _ := c.proxied(r)
		r = r.WithContext(context.WithValue(ctx, hopKey{}, hop{foreign, proxy != nil}))
		resp, err := c.http.Do(r)
		if err != nil {
			return nil, nil, dialError(ctx, u, err)
		}
		if see != nil {
			if err := see(resp.Header); err != nil {
				resp.Body.Close()
				return nil, nil, err
			}
		}
		if resp.StatusCode < 300 || resp.StatusCode > 399 || resp.StatusCode == http.StatusNotModified {
			return resp, u, nil
		}
		drop(resp.Body)
		location := resp.Header.Get("Location")
		next, err := u.Parse(location)
		switch {
		case location == "" || err != nil || next.Host == "" || next.User != nil:
			return nil, nil, permanent("%s: redirects to no address", where(u))
		case c.noFollow:
			return nil, nil, permanent("%s: redirects to %s: want an answer", where(u), where(next))
		case hops == maxHops:
			return nil, nil, permanent("%s: more than %d redirects", where(u), maxHops)
		case next.Scheme != "https" && (next.Scheme != "http" || u.Scheme == "https"):
			return nil, nil, permanent("%s: redirects to %s: want https", where(u), where(next))
		case origin(next) != origin(c.base) && !c.private.Load() && privateHost(next.Hostname()):
			return nil, nil, permanent("%s: redirects to %s, an address of this machine or a private network", where(u), where(next))
		}
		next.Fragment = ""
		u = next
	}
}

// drop ends a response that is not read; a short one is, so that its connection serves
// again.
func drop(body io.ReadCloser) {
	io.CopyN(io.Discard, body, 4<<10)
	body.Close()
}

// dialError is an error of a request without the query that net/http puts into it.
func dialError(ctx context.Context, u *url.URL, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if isPermanent(err) {
		return permanent("%s: %w", where(u), err)
	}
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return permanent("%s: %w: is this machine's clock right? It says %s", where(u), err, time.Now().Format(time.DateOnly))
	case errors.As(err, &invalid), errors.As(err, &unknown), errors.As(err, &host):
		return permanent("%s: %w", where(u), err)
	}
	return fmt.Errorf("%s: %w", where(u), err)
}

// asked makes the error of an answer that has no bytes in it; nil for 200 and 206.
func asked(resp *http.Response, at *url.URL) error {
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		return nil
	}
	drop(resp.Body)
	return &statusError{status: resp.StatusCode, code: resp.Header.Get("X-Error-Code"), where: where(at), wait: askedWait(resp.Header)}
}

// unreachable reports whether an error is of a host that is not there at all.
func unreachable(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && !dns.IsTemporary || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENETUNREACH)
}
