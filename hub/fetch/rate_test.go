package fetch

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"windrow/hub"
	"windrow/hub/hubtest"
)

// BenchmarkRate fetches a file of 1 GiB on this machine, hashed, with 1, 2 and 8
// connections, beside curl with 8 ranges, unhashed, in turns; and a second pull. The
// server is in the same process and sends the file by the system's own call. Before each a
// file of that size is written and removed: in a virtual machine memory that was not used
// for a while is slow the first time, for whoever comes first.
func BenchmarkRate(b *testing.B) {
	const size = 1 << 30
	dir := b.TempDir()
	source := filepath.Join(dir, "source")
	f, err := os.Create(source)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	h := hub.Digest(strings.Repeat("0", 64)).NewHash(size)
	block := random(1, 16<<20)
	for i := range size / len(block) {
		block[0] = byte(i)
		h.Write(block)
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	digest := string(hub.DigestOf(h))
	s := hubtest.New(b, false)
	repo := s.Add("me/big", commitA, nil)
	repo.Listing = func([]map[string]any) []map[string]any {
		return []map[string]any{{"type": "file", "path": "model.gguf", "size": size, "oid": strings.Repeat("a", 40), "lfs": map[string]any{"oid": digest, "size": size}}}
	}
	s.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if !strings.HasSuffix(r.URL.Path, "model.gguf") {
			next(w, r)
			return
		}
		file, err := os.Open(source)
		if err != nil {
			b.Error(err)
			return
		}
		defer file.Close()
		http.ServeContent(w, r, "", time.Time{}, file)
	})
	ready := func() {
		w, err := os.Create(filepath.Join(dir, "ready"))
		if err != nil {
			b.Fatal(err)
		}
		defer os.Remove(w.Name())
		defer w.Close()
		for range size / len(block) {
			if _, err := w.Write(block); err != nil {
				b.Fatal(err)
			}
		}
	}
	at := filepath.Join(dir, "curl")
	byCurl := func() float64 {
		os.RemoveAll(at)
		os.Mkdir(at, 0o755)
		args := []string{"-s", "--parallel", "--parallel-immediate", "--parallel-max", "8"}
		for i := range int64(8) {
			args = append(args, "-r", fmt.Sprintf("%d-%d", i*size/8, (i+1)*size/8-1), "-o", filepath.Join(at, fmt.Sprint(i)), s.URL+"/me/big/resolve/"+commitA+"/model.gguf")
			if i < 7 {
				args = append(args, "--next", "-s")
			}
		}
		ready()
		began := time.Now()
		if out, err := exec.Command("curl", args...).CombinedOutput(); err != nil {
			b.Skipf("curl: %v %s", err, out)
		}
		return size / time.Since(began).Seconds() / 1e6
	}
	cache := &hub.Cache{Root: filepath.Join(dir, "hub")}
	byPull := func(connections int) float64 {
		os.RemoveAll(cache.Root)
		ready()
		began := time.Now()
		r, err := Pull(context.Background(), cache, hub.Name{Repo: "me/big", Revision: "main"}, Options{Endpoint: s.URL, Connections: connections})
		if err != nil || r.Fetched != size {
			b.Fatalf("%+v, %v", r, err)
		}
		return size / time.Since(began).Seconds() / 1e6
	}
	for b.Loop() {
		b.ReportMetric(byCurl(), "curl8-MB/s")
		for _, n := range []int{1, 2, 8} {
			b.ReportMetric(byPull(n), fmt.Sprintf("pull%d-MB/s", n))
		}
		began := time.Now()
		r, err := Pull(context.Background(), cache, hub.Name{Repo: "me/big", Revision: "main"}, Options{Endpoint: s.URL})
		if err != nil || r.Fetched != 0 {
			b.Fatalf("%+v, %v", r, err)
		}
		b.ReportMetric(time.Since(began).Seconds()*1000, "again-ms")
		b.ReportMetric(float64(r.Requests), "again-requests")
	}
}

// BenchmarkLatency fetches 384 MiB from a server that gives a connection 50 MB/s and lets
// wait for each answer as a network of that round trip would. What a real network does
// besides, as at a connection's start, is not in it.
func BenchmarkLatency(b *testing.B) {
	const size, perConnection = 384 << 20, 50e6
	block := random(1, 16<<20)
	h := hub.Digest(strings.Repeat("0", 64)).NewHash(size)
	for range size / len(block) {
		h.Write(block)
	}
	digest := string(hub.DigestOf(h))
	for _, delay := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond} {
		for _, n := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("%s/%d", delay, n), func(b *testing.B) {
				s := hubtest.New(b, false)
				repo := s.Add("me/big", commitA, nil)
				repo.Listing = func([]map[string]any) []map[string]any {
					return []map[string]any{{"type": "file", "path": "model.gguf", "size": size, "oid": strings.Repeat("a", 40), "lfs": map[string]any{"oid": digest, "size": size}}}
				}
				s.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
					time.Sleep(delay)
					var first, last int64
					if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); n != 2 {
						next(w, r)
						return
					}
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, size))
					w.Header().Set("Content-Length", fmt.Sprint(last+1-first))
					w.WriteHeader(http.StatusPartialContent)
					began, sent := time.Now(), int64(0)
					for first+sent <= last {
						at := (first + sent) % int64(len(block))
						some := block[at:min(at+256<<10, int64(len(block)), at+last+1-first-sent)]
						if _, err := w.Write(some); err != nil {
							return
						}
						sent += int64(len(some))
						time.Sleep(time.Duration(float64(sent)/perConnection*1e9) - time.Since(began))
					}
				})
				for b.Loop() {
					cache := &hub.Cache{Root: filepath.Join(b.TempDir(), "hub")}
					began := time.Now()
					r, err := Pull(context.Background(), cache, hub.Name{Repo: "me/big", Revision: "main"}, Options{Endpoint: s.URL, Connections: n})
					if err != nil || r.Fetched != size {
						b.Fatalf("%+v, %v", r, err)
					}
					rate := size / time.Since(began).Seconds() / 1e6
					b.ReportMetric(rate, "MB/s")
					b.ReportMetric(100*rate/(float64(n)*perConnection/1e6), "%")
					b.ReportMetric(float64(r.Requests), "requests")
					os.RemoveAll(cache.Root)
				}
			})
		}
	}
}
