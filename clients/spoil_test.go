package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// The proxy answers as the server does, but for one detail, which it breaks: a client
// to which that makes no difference cannot see the detail. Its paths are
// /DETAIL/SERVER/... .

// exchange is a request and its reply, whole, to be spoiled.
type exchange struct {
	path   string
	header http.Header
	body   object // of the request; nil: none

	status int
	type_  string
	reply  []byte
	out    http.Header
}

// kept are the requests that the proxy does not let go of (detail 40).
var kept struct {
	sync.Mutex
	stop []context.CancelFunc
}

func stopSpoiled() {
	kept.Lock()
	defer kept.Unlock()
	for _, stop := range kept.stop {
		stop()
	}
	kept.stop = nil
}

func serveSpoiled() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go http.Serve(l, http.HandlerFunc(spoiled))
	return "http://" + l.Addr().String(), nil
}

func spoiled(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/stop" {
		stopSpoiled()
		return
	}
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	number, err := strconv.Atoi(parts[0])
	if err != nil || len(parts) < 3 {
		http.NotFound(w, r)
		return
	}
	x := &exchange{path: "/" + parts[2], header: r.Header.Clone(), status: http.StatusOK}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	json.Unmarshal(data, &x.body)
	if refusal := spoilRequest(number, x); refusal != 0 {
		x.status, x.type_, x.reply, x.out = refusal, "application/json", []byte(`{"error":{"message":"spoiled","type":"invalid_request_error","param":null,"code":"spoiled"},"type":"error"}`), http.Header{}
	} else {
		ctx := r.Context()
		if number == 40 { // does not see that its client leaves
			held, stop := context.WithCancel(context.WithoutCancel(ctx))
			ctx = held
			kept.Lock()
			kept.stop = append(kept.stop, stop)
			kept.Unlock()
		}
		if err := x.ask(ctx, servers[parts[1]], r.Method, r.URL.Query(), data); err != nil {
			return
		}
		x.observe(r.Method)
		spoilReply(number, x)
	}
	for key, values := range x.out {
		if key != "Content-Length" {
			w.Header()[key] = values
		}
	}
	w.Header().Set("Content-Type", x.type_)
	w.WriteHeader(x.status)
	w.Write(x.reply)
}

// observed are exchanges of clients that are not as the OpenAPI file says.
var observed struct {
	sync.Mutex
	wrong []error
}

// observe compares what a client asked, and got, with the file.
func (x *exchange) observe(method string) {
	c, err := openContract()
	if err == nil {
		var request []byte
		if request, err = json.Marshal(x.body); err == nil {
			err = c.check(traffic{method, x.path, string(request), x.status, x.out, string(x.reply)})
		}
	}
	if err == nil {
		return
	}
	observed.Lock()
	defer observed.Unlock()
	observed.wrong = append(observed.wrong, err)
}

func (x *exchange) ask(ctx context.Context, base, method string, query url.Values, given []byte) error {
	data := given
	if x.body != nil {
		var err error
		if data, err = json.Marshal(x.body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, base+x.path+"?"+query.Encode(), bytes.NewReader(data))
	if err != nil {
		return err
	}
	x.header.Del("Accept-Encoding")
	r.Header = x.header
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer w.Body.Close()
	x.status, x.out, x.type_ = w.StatusCode, w.Header, w.Header.Get("Content-Type")
	x.reply, err = io.ReadAll(w.Body)
	return err
}

// streamed reports whether the reply is of events.
func (x *exchange) streamed() bool { return strings.HasPrefix(x.type_, "text/event-stream") }

// lines changes each line of a stream.
func (x *exchange) lines(change func(line string) string) {
	lines := strings.SplitAfter(string(x.reply), "\n")
	for i, line := range lines {
		lines[i] = change(line)
	}
	x.reply = []byte(strings.Join(lines, ""))
}

// objects changes the object of each event, or of the whole reply.
func (x *exchange) objects(change func(o object)) {
	if !x.streamed() {
		var o object
		if json.Unmarshal(x.reply, &o) == nil {
			change(o)
			x.reply, _ = json.Marshal(o)
		}
		return
	}
	x.lines(func(line string) string {
		var o object
		payload, ok := strings.CutPrefix(line, "data: ")
		if !ok || json.Unmarshal([]byte(payload), &o) != nil {
			return line
		}
		change(o)
		data, _ := json.Marshal(o)
		return "data: " + string(data) + "\n"
	})
}

// choices changes each choice of chunks and of whole replies, with its delta or message.
func (x *exchange) choices(change func(choice, said object)) {
	x.objects(func(o object) {
		list, _ := o["choices"].([]any)
		for _, item := range list {
			c := item.(object)
			said, ok := c["delta"].(object)
			if !ok {
				said, _ = c["message"].(object)
			}
			if said == nil {
				said = object{}
			}
			change(c, said)
		}
	})
}

// calls changes each call of chunks and of whole replies.
func (x *exchange) calls(change func(call, function object)) {
	x.choices(func(_, said object) {
		list, _ := said["tool_calls"].([]any)
		for _, item := range list {
			f, _ := item.(object)["function"].(object)
			change(item.(object), f)
		}
	})
}
