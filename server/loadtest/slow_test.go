package loadtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"windrow/schedule"
	"windrow/server"
)

func decode(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%v: %.200s", err, data)
	}
}

// narrow makes the buffers of connections small, so that a reader that stops is felt
// after some kB.
// It counts the connections that are open.
type narrow struct {
	net.Listener
	open *atomic.Int64
}

// closing is a connection that is counted out once.
type closing struct {
	net.Conn
	once sync.Once
	open *atomic.Int64
}

// Close implements net.Conn.
func (c *closing) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

const narrowBytes = 4096

// Accept implements net.Listener.
func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(narrowBytes)
	}
	l.open.Add(1)
	return &closing{Conn: c, open: l.open}, nil
}

// TestSlowClients: 100 readers that stop, and 100 that send a byte of their header a
// second, beside 8 good ones: the good ones' rate stays, and the bad ones are ended.
func TestSlowClients(t *testing.T) {
	// What a pass takes is fixed, so that rates can be compared while other programs run.
	const good, bad, tokens, pass = 8, 100, 40, 5 * time.Millisecond
	writeTime, measured, rounds := 5*time.Second, time.Second, 2
	if full() {
		writeTime, measured, rounds = 30*time.Second, 5*time.Second, 3
	}
	var open atomic.Int64 // connections of the server
	s := serve(t, schedule.Options{Sequences: 2 * bad, Queue: 4 * bad, Prefixes: -1}, server.Options{WriteTime: writeTime}, 0, func(l net.Listener) net.Listener { return narrow{l, &open} })
	s.engine.delay.Store(int64(pass))
	var done atomic.Bool
	var made atomic.Int64 // chunks that good ones read
	var all sync.WaitGroup
	defer all.Wait()
	defer done.Store(true)
	for i := range good {
		all.Go(func() {
			for n := 0; !done.Load(); n++ {
				if err := s.goodReader(&made, request{"prompt": ids(i*1000+n, 10), "max_tokens": tokens, "mode": "ar", "ignore_eos": true, "temperature": 0, "stream": true}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	rate := func() float64 {
		before, began := made.Load(), time.Now()
		time.Sleep(measured)
		return float64(made.Load()-before) / time.Since(began).Seconds()
	}
	time.Sleep(measured / 2)
	var without, with []float64
	// What others do on the machine only takes away: the best of the rounds counts, and of more
	// of them where these do not suffice.
	slowed := func() bool { return slices.Max(with) < 0.95*slices.Max(without) }
	for n := 0; n < rounds || n < 3*rounds && slowed(); n++ {
		without = append(without, rate())
		goroutines, before := runtime.NumGoroutine(), open.Load()
		asked := s.scheduler.State().Requests
		gone := make(chan struct{})
		began := time.Now()
		ends := s.slow(t, bad, gone)
		// Once what they asked for is generated, their answers wait to be read.
		for deadline := time.Now().Add(2 * time.Minute); s.scheduler.State().Running > good || s.scheduler.State().Requests < asked+bad; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d requests run", s.scheduler.State().Running)
			}
		}
		if n := open.Load(); n < before+bad && time.Since(began) < writeTime {
			t.Errorf("%d connections, %d before the bad ones: those that do not read have been ended before their time", n, before)
		}
		with = append(with, rate())
		for deadline := time.Now().Add(writeTime + time.Minute); open.Load() > before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d connections, %d before the bad ones", open.Load(), before)
			}
		}
		close(gone)
		for range 2 * bad {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines+2*good; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d goroutines, %d before the bad ones", runtime.NumGoroutine(), goroutines)
			}
		}
	}
	t.Logf("chunks/s of the good ones: %.0f alone, %.0f beside 200 bad ones", without, with)
	if slowed() {
		t.Errorf("%.0f chunks/s beside bad clients, %.0f without", slices.Max(with), slices.Max(without))
	}
}

// goodReader reads a stream as it comes, and counts its chunks.
func (s *running) goodReader(made *atomic.Int64, r request) error {
	w, err := s.client.Post(s.url+"/v1/completions", "application/json", r.reader())
	if err != nil {
		return err
	}
	defer w.Body.Close()
	lines := bufio.NewScanner(w.Body)
	last := ""
	for lines.Scan() {
		if line := lines.Text(); line != "" {
			last = line
			made.Add(1)
		}
	}
	if w.StatusCode != http.StatusOK || last != "data: [DONE]" || lines.Err() != nil {
		return fmt.Errorf("a good reader: %d %.200q %v", w.StatusCode, last, lines.Err())
	}
	return nil
}

// slow starts n readers that stop and n senders of a byte a second, which stay until
// gone. Each one's end is sent, an error where it was not answered as it should be.
func (s *running) slow(t *testing.T, n int, gone <-chan struct{}) <-chan error {
	t.Helper()
	ends := make(chan error, 2*n)
	address := strings.TrimPrefix(s.url, "http://")
	for i := range n {
		go func() { ends <- stoppedReader(address, ids(i, 5), gone) }()
		go func() { ends <- byteSender(address, gone) }()
	}
	return ends
}

// stoppedReader asks for a long stream, reads its first line, and then nothing.
func stoppedReader(address string, prompt []int32, gone <-chan struct{}) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.(*net.TCPConn).SetReadBuffer(narrowBytes)
	body, _ := io.ReadAll(request{"prompt": prompt, "max_tokens": 300, "mode": "ar", "ignore_eos": true, "stream": true}.reader())
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	r := bufio.NewReaderSize(c, 64)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		return fmt.Errorf("a stopped reader: %q %v", line, err)
	}
	<-gone
	return nil
}

// byteSender sends its header one byte a second.
func byteSender(address string, gone <-chan struct{}) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for _, b := range []byte("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 100)) {
		if _, err := c.Write([]byte{b}); err != nil {
			break // the server has ended it
		}
		select {
		case <-tick.C:
		case <-gone:
			return nil
		}
	}
	<-gone
	return nil
}
