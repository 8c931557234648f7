//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// streamed begins a generation of so many tokens, and returns it once it is under way.
func streamed(t *testing.T, client *http.Client, url string, tokens int) *http.Response {
	t.Helper()
	body := strings.TrimSuffix(question, "}") + fmt.Sprintf(`,"stream":true,"ignore_eos":true,"max_tokens":%d,"mode":"ar"}`, tokens)
	w, err := client.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil || w.StatusCode != 200 {
		t.Fatal(w, err)
	}
	t.Cleanup(func() { w.Body.Close() })
	return w
}

// TestTermUnderLoad: who runs is answered to the end, who waits hears 503, who comes
// finds nobody, and the program ends with 0.
func TestTermUnderLoad(t *testing.T) {
	s := startServe(t, "--listen", "127.0.0.1:0", "--sequences", "1", "--drain", "5m")
	runs := streamed(t, http.DefaultClient, s.url, 1500) // the others are there before its end on a busy machine, too
	type reply struct {
		status int
		body   string
		retry  string
	}
	waiting := make(chan reply, 3)
	for range 3 {
		go func() {
			w, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(question))
			if err != nil {
				waiting <- reply{body: err.Error()}
				return
			}
			data, _ := io.ReadAll(w.Body)
			w.Body.Close()
			waiting <- reply{w.StatusCode, string(data), w.Header.Get("Retry-After")}
		}()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		w, err := http.Get(s.url + "/slots")
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(w.Body)
		w.Body.Close()
		if strings.Contains(string(data), `"waiting":3,`) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("they do not wait: %s", data)
		}
	}
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if r := <-waiting; r.status != 503 || !strings.Contains(r.body, `"draining"`) || r.retry == "" {
			t.Errorf("one that waited: %+v", r)
		}
	}
	fresh := &http.Client{Transport: &http.Transport{}}
	if w, err := fresh.Get(s.url + "/health"); err == nil {
		t.Errorf("one that came: status %d", w.StatusCode)
	}
	if data, err := io.ReadAll(runs.Body); err != nil || !strings.HasSuffix(string(data), "data: [DONE]\n\n") {
		t.Errorf("the one that ran: %v, %.200s", err, data)
	}
	io.Copy(io.Discard, s.stderr)
	s.Wait()
	if code := s.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestSwapUnderLoad: two models, of which one is loaded at a time, and clients of both at
// once: all are answered by the model that they asked for, and with one text.
func TestSwapUnderLoad(t *testing.T) {
	h := newHousehold(t)
	h.want(0, "a; log", "", "start", "--model", "a=tiny-gsm", "--model", "b=tiny-gsm", "--drain", "5m")
	c := h.client()
	list, err := c.Get("http://x/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	data, _ := io.ReadAll(list.Body)
	list.Body.Close()
	if !strings.Contains(string(data), `"id":"a"`) || !strings.Contains(string(data), `"id":"b"`) || strings.Count(string(data), `"max_model_len":0`) != 0 {
		t.Errorf("%s", data)
	}
	var all sync.WaitGroup
	var most atomic.Int32
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() { // never two at once
		defer close(watched)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
			w, err := c.Get("http://x/slots")
			if err != nil {
				t.Error(err)
				return
			}
			var slots struct{ Models []struct{ State string } }
			json.NewDecoder(w.Body).Decode(&slots)
			w.Body.Close()
			n := int32(0)
			for _, m := range slots.Models {
				if m.State != "unloaded" {
					n++
				}
			}
			most.Store(max(n, most.Load()))
		}
	}()
	for i := range 8 {
		all.Go(func() {
			for n := range 4 {
				name := string("ab"[(i+n)%2])
				w, err := c.Post("http://x/v1/chat/completions", "application/json", strings.NewReader(`{"model":"`+name+`",`+question[1:]))
				if err != nil {
					t.Error(err)
					return
				}
				data, err := io.ReadAll(w.Body)
				w.Body.Close()
				if err != nil || w.StatusCode != 200 || !strings.Contains(string(data), `"model":"`+name+`"`) || !strings.Contains(string(data), "#### 45") {
					t.Errorf("%s: %d %s %v", name, w.StatusCode, data, err)
				}
			}
		})
	}
	all.Wait()
	close(done)
	<-watched
	if most.Load() != 1 {
		t.Errorf("%d models at once", most.Load())
	}
	if w, err := c.Post("http://x/v1/chat/completions", "application/json", strings.NewReader(`{"model":"c",`+question[1:])); err != nil || w.StatusCode != 404 {
		t.Errorf("a model that is none: %v %v", w, err)
	}
	// The last one in use is gone when the server is told to end in the middle of a swap.
	runs := streamed(t, c, "http://x", 1500) // of a; it has not ended when the server is told to
	swapping := make(chan int, 1)
	go func() {
		w, err := c.Post("http://x/v1/chat/completions", "application/json", strings.NewReader(`{"model":"b",`+question[1:]))
		if err != nil {
			swapping <- -1
			return
		}
		w.Body.Close()
		swapping <- w.StatusCode
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		w, err := c.Get("http://x/slots")
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(w.Body)
		w.Body.Close()
		if strings.Contains(string(data), "draining") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nobody swaps: %s", data)
		}
	}
	h.want(0, "", "stopped", "stop")
	if status := <-swapping; status != 503 {
		t.Errorf("one that waited for a swap at the end: status %d", status)
	}
	if data, err := io.ReadAll(runs.Body); err != nil || !strings.HasSuffix(string(data), "data: [DONE]\n\n") {
		t.Errorf("the one that ran: %v", err)
	}
}

// TestSocketActivation hands a socket over as systemd does: the server answers there,
// says so, unloads what nobody uses, and leaves the socket where it is.
func TestSocketActivation(t *testing.T) {
	h := newHousehold(t)
	path := filepath.Join(h.folder, "activated")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	notices, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(h.folder, "notify")})
	if err != nil {
		t.Fatal(err)
	}
	defer notices.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(h.folder, "windrow-link", "windrow")
	os.Mkdir(filepath.Dir(link), 0o700)
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" serve --listen fd:windrow.socket --idle-unload 200ms`, link)
	c.Env = append(h.env, "LISTEN_FDS=1", "LISTEN_FDNAMES=windrow.socket", "NOTIFY_SOCKET="+filepath.Join(h.folder, "notify"), "WATCHDOG_USEC=100000")
	c.ExtraFiles = []*os.File{file}
	var log bytes.Buffer
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	file.Close()
	// They are read at once, as systemd does: the socket holds ten.
	heard := make(chan string, 4096)
	go func() {
		var b [256]byte
		for {
			n, err := notices.Read(b[:])
			if err != nil {
				return
			}
			heard <- string(b[:n])
		}
	}()
	hear := func() string {
		select {
		case s := <-heard:
			return s
		case <-time.After(2 * time.Minute):
			t.Fatalf("nothing is heard: %s", log.String())
			return ""
		}
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	// The first request is what activates: it waits until the model is there.
	for range 2 {
		w, err := client.Post("http://x/v1/chat/completions", "application/json", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(w.Body)
		w.Body.Close()
		if w.StatusCode != 200 || !strings.Contains(string(data), "#### 45") {
			t.Errorf("%d %s", w.StatusCode, data)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			w, err := client.Get("http://x/slots")
			if err != nil {
				t.Fatal(err)
			}
			data, _ := io.ReadAll(w.Body)
			w.Body.Close()
			if strings.Contains(string(data), `"state":"unloaded"`) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("it stays loaded: %s", data)
			}
		}
	}
	if got := hear(); got != "READY=1\nSTATUS=tiny-gsm" {
		t.Errorf("heard %q", got)
	}
	if got := hear(); got != "WATCHDOG=1" {
		t.Errorf("heard %q", got)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for hear() != "STOPPING=1" {
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, log.String())
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket was removed: %v", err)
	}
}

// certificate makes a certificate of its own for localhost.
func certificate(t *testing.T, folder, name string) (pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, data := range map[string][]byte{"cert.pem": cert, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(filepath.Join(folder, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

// TestReload: SIGHUP takes new keys and certificates, and keeps the old ones where the
// new cannot be read. TLS before 1.3 is refused.
func TestReload(t *testing.T) {
	folder := t.TempDir()
	keys := filepath.Join(folder, "keys")
	allow := func(secret string) {
		if err := os.WriteFile(keys, fmt.Appendf(nil, "ann:%x\n", sha256.Sum256([]byte(secret))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	allow("the first key")
	trusted := certificate(t, folder, "first")
	s := startServe(t, "--listen", "127.0.0.1:0", "--api-key-file", keys, "--tls-cert", filepath.Join(folder, "cert.pem"), "--tls-key", filepath.Join(folder, "key.pem"))
	address, ok := strings.CutPrefix(s.url, "https://127.0.0.1:")
	if !ok {
		t.Fatalf("it says %q", s.url)
	}
	get := func(pool *x509.CertPool, key string, most uint16) (int, error) {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MaxVersion: most}}}
		defer c.CloseIdleConnections()
		r, err := http.NewRequest("GET", "https://localhost:"+address+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		w, err := c.Do(r)
		if err != nil {
			return 0, err
		}
		w.Body.Close()
		return w.StatusCode, nil
	}
	want := func(pool *x509.CertPool, key string, status int) {
		t.Helper()
		if got, err := get(pool, key, 0); err != nil || got != status {
			t.Errorf("key %q: %d, %v, want %d", key, got, err, status)
		}
	}
	want(trusted, "the first key", 200)
	want(trusted, "another key", 401)
	if _, err := get(trusted, "the first key", tls.VersionTLS12); err == nil {
		t.Error("TLS 1.2 was spoken")
	}
	if w, err := http.Get("http://127.0.0.1:" + address + "/health"); err == nil && w.StatusCode != 400 {
		t.Errorf("plain HTTP was answered with %d", w.StatusCode)
	}
	hangUp := func(say string) {
		t.Helper()
		if err := s.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewReader(s.stderr); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("%v before %q", err, say)
			}
			if strings.Contains(line, say) {
				s.stderr = lines
				return
			}
		}
	}
	allow("the second key")
	second := certificate(t, folder, "second")
	hangUp(`"msg":"reloaded"`)
	want(second, "the second key", 200)
	want(second, "the first key", 401)
	if _, err := get(trusted, "the second key", 0); err == nil {
		t.Error("the first certificate is still there")
	}
	if err := os.WriteFile(keys, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	hangUp("not reloaded")
	want(second, "the second key", 200)
	if code := s.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
