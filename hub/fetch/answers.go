package fetch

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// permanentError is one that trying again does not mend.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// permanent makes an error that is not tried again.
func permanent(format string, args ...any) error {
	return permanentError{fmt.Errorf(format, args...)}
}

func isPermanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}

// statusError is an answer that brings no bytes.
type statusError struct {
	status int
	code   string        // X-Error-Code, the Hub's own name of the trouble
	where  string        // scheme, host and path: never a query
	wait   time.Duration // what the server asks for; 0: nothing
	cached bool          // the address was one that a redirect had given before
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("%s: status %d", e.where, e.status)
	if name := http.StatusText(e.status); name != "" {
		text += " " + name
	}
	return text
}

// busy reports whether the server wants fewer requests.
func (e *statusError) busy() bool {
	return e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable
}

// maxWait bounds what a server may ask for: the Hub counts in windows of five minutes.
const maxWait = 10 * time.Minute

// askedWait is how long a response asks to wait: by Retry-After, or by t= of RateLimit
// where r=, what remains, is 0. A moment counts from the server's own clock: this machine's
// may be wrong.
func askedWait(h http.Header) time.Duration {
	wait, now := time.Duration(0), time.Now()
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		now = at
	}
	if s := h.Get("Retry-After"); s != "" {
		if n, err := strconv.ParseFloat(s, 64); err == nil && n >= 0 && n < 1e6 {
			wait = time.Duration(n * float64(time.Second))
		} else if at, err := http.ParseTime(s); err == nil {
			wait = at.Sub(now)
		}
	}
	for policy := range strings.SplitSeq(h.Get("RateLimit"), ",") {
		remaining, reset := 0, 0
		for part := range strings.SplitSeq(policy, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			n, err := strconv.Atoi(strings.TrimSpace(value))
			switch name = strings.TrimSpace(name); {
			case err != nil || n < 0 || n >= 1e6:
			case name == "r":
				remaining = n
			case name == "t":
				reset = n
			}
		}
		if remaining == 0 { // the Hub says what is left with every answer, also with errors of another kind
			wait = max(wait, time.Duration(reset)*time.Second)
		}
	}
	return min(max(wait, 0), maxWait)
}

// contentRange reads "bytes FIRST-LAST/TOTAL".
func contentRange(s string) (first, last, total int64, ok bool) {
	rest, ok := strings.CutPrefix(s, "bytes ")
	span, all, ok2 := strings.Cut(rest, "/")
	from, to, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, 0, false
	}
	var errs [3]error
	first, errs[0] = strconv.ParseInt(from, 10, 64)
	last, errs[1] = strconv.ParseInt(to, 10, 64)
	total, errs[2] = strconv.ParseInt(all, 10, 64)
	return first, last, total, errors.Join(errs[:]...) == nil && first >= 0
}
