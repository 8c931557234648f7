package server

import (
	"bytes"
	"encoding/json"

	"windrow/decoder"
)

// includeLogprobs is what a request's include says of the logprobs of messages.
const includeLogprobs = "message.output_text.logprobs"

// readIncluded reads include and top_logprobs; nil: nobody asks for logprobs.
func readIncluded(f *fields) *int {
	asked := false
	for i, raw := range f.list("include", 32) {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			f.bad(index("include", i), "want a string")
		}
		asked = asked || s == includeLogprobs
	}
	n := f.integer("top_logprobs", 0, decoder.MaxLogprobs)
	switch {
	case !asked && n != nil && *n > 0:
		f.bad("top_logprobs", "want %q in include beside it", includeLogprobs)
	case !asked:
		return nil
	case n == nil:
		return new(int)
	}
	return n
}

// likely finds the tokens of an answer's parts. Tokens come at once with their text or
// before it, and parts are texts without the tags and blanks between them: so a part's
// tokens are those whose bytes it has, behind those of the part before.
type likely struct {
	run    *run
	tokens []placed
	raw    []byte // of the tokens, from the place first on
	first  int
	end    int
}

// placed is a token and where its bytes lie in all that was generated.
type placed struct {
	decoder.Logprobs
	from, to int
}

// tell takes the next tokens. A nil one takes nothing, and has nothing.
func (l *likely) tell(list []decoder.Logprobs) {
	if l == nil {
		return
	}
	for _, x := range list {
		raw := l.run.model.Tokenizer.Bytes(x.Token.ID)
		l.raw = append(l.raw, raw...)
		l.tokens = append(l.tokens, placed{x, l.end, l.end + len(raw)})
		l.end += len(raw)
	}
}

// take returns the tokens of a part's next text, each once: one that ends in the text
// behind it is this text's. Text that no tokens have as it is (of broken characters, or
// of a call's arguments, which may be written in another way) has none.
func (l *likely) take(text string) []tokenLogprob {
	if l == nil {
		return nil
	}
	i := bytes.Index(l.raw, []byte(text))
	if i < 0 || text == "" {
		return nil
	}
	from := l.first + i
	to := from + len(text)
	l.raw, l.first = l.raw[i+len(text):], to
	var list []decoder.Logprobs
	n := 0
	for ; n < len(l.tokens) && l.tokens[n].from < to; n++ {
		if l.tokens[n].to > from {
			list = append(list, l.tokens[n].Logprobs)
		}
	}
	l.tokens = l.tokens[n:]
	return l.run.chatLogprobs(list).Content
}

// likely finds the tokens of a run; nil where nobody asked for them.
func (r *run) likely() *likely {
	if r.params.logprobs == nil {
		return nil
	}
	return &likely{run: r}
}

// told are the tokens of a section's last delta.
func (x *section) told() *[]tokenLogprob {
	list := append([]tokenLogprob{}, x.likely...)
	return &list
}
