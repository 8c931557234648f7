package server

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"windrow/decoder"
	"windrow/tokenizer"
)

// The wire format of how likely a conversation's tokens were. All tokens are there that
// the model wrote, in order, reasoning, calls and a stop string too; not the one that
// ended the answer.
type (
	chatLogprobs struct {
		Content []tokenLogprob `json:"content"`
		Refusal *string        `json:"refusal"`
	}
	tokenLogprob struct {
		likelyToken
		TopLogprobs []likelyToken `json:"top_logprobs"`
	}
	likelyToken struct {
		Token   string  `json:"token"`
		Logprob float32 `json:"logprob"`
		// Bytes are there always: a token may be a part of a character.
		Bytes byteList `json:"bytes"`
	}
)

// mostLikely is how many tokens' logprobs a chunk has: a step may bring hundreds of
// tokens, and an event is a line that clients can read.
const mostLikely = 16

// leastLogprob stands for what cannot be: JSON has no infinity.
const leastLogprob = -9999

// byteList is bytes that are written as numbers.
type byteList []byte

// MarshalJSON implements json.Marshaler.
func (b byteList) MarshalJSON() ([]byte, error) {
	text := []byte{'['}
	for i, x := range b {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(x), 10)
	}
	return append(text, ']'), nil
}

// readChatLogprobs reads logprobs and top_logprobs; nil: nobody asks.
func readChatLogprobs(f *fields) *int {
	asked := f.isTrue("logprobs")
	n := f.integer("top_logprobs", 0, decoder.MaxLogprobs)
	switch {
	case !asked && n != nil && *n > 0:
		f.bad("top_logprobs", "want logprobs to be true beside it")
	case !asked:
		return nil
	case n == nil:
		return new(int)
	}
	return n
}

// chatLogprobs are logprobs in the chat's form; nil where there are none.
func (r *run) chatLogprobs(list []decoder.Logprobs) *chatLogprobs {
	if r.params.logprobs == nil {
		return nil
	}
	p := &chatLogprobs{Content: []tokenLogprob{}}
	for _, x := range list {
		said := tokenLogprob{likelyToken: likelyOf(r.model.Tokenizer, x.Token), TopLogprobs: []likelyToken{}}
		for _, top := range x.Top {
			said.TopLogprobs = append(said.TopLogprobs, likelyOf(r.model.Tokenizer, top))
		}
		p.Content = append(p.Content, said)
	}
	return p
}

func likelyOf(t *tokenizer.Tokenizer, p decoder.Logprob) likelyToken {
	raw := t.Bytes(p.ID)
	if raw == nil { // a special token: its name
		raw = []byte(t.Decode([]int32{p.ID}, false))
	}
	return likelyToken{strings.ToValidUTF8(string(raw), "\ufffd"), max(p.Logprob, leastLogprob), raw}
}

// The wire format of how likely a completion's tokens were: lists with an entry a token.
type completionLogprobs struct {
	Tokens        []string    `json:"tokens"`
	TokenLogprobs []*float32  `json:"token_logprobs"` // null of the first of a prompt
	TopLogprobs   []likeliest `json:"top_logprobs"`
	TextOffset    []int       `json:"text_offset"` // where a token begins in the reply's text, in characters
	Bytes         []byteList  `json:"bytes"`
}

// likeliest are the likeliest tokens and the one that was taken, each with its logprob:
// an object, best first; null where nothing is known.
type likeliest []likelyToken

// MarshalJSON implements json.Marshaler.
func (l likeliest) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("null"), nil
	}
	text := []byte{'{'}
	seen := map[string]bool{}
	for _, x := range l {
		name := x.name()
		if seen[name] {
			continue
		}
		seen[name] = true
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(x.Logprob)
		if err != nil {
			return nil, err
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(append(append(text, key...), ':'), value...)
	}
	return append(text, '}'), nil
}

// name is a token as completions write it: its text, or its bytes where they are not
// whole characters.
func (x *likelyToken) name() string {
	if utf8.Valid(x.Bytes) {
		return x.Token
	}
	var s strings.Builder
	s.WriteString("bytes:")
	for _, b := range x.Bytes {
		fmt.Fprintf(&s, `\x%02x`, b)
	}
	return s.String()
}

// offsets counts the characters of a text that comes in tokens.
type offsets struct {
	characters int
	part       []byte // of a character
	prompt     int    // how many of the next tokens are the prompt's: special ones are in its text
}

// completionLogprobs are logprobs in the form of completions; nil where there are none.
func (r *run) completionLogprobs(list []decoder.Logprobs, o *offsets) *completionLogprobs {
	if r.params.logprobs == nil {
		return nil
	}
	t := r.model.Tokenizer
	p := &completionLogprobs{Tokens: []string{}, TokenLogprobs: []*float32{}, TopLogprobs: []likeliest{}, TextOffset: []int{}, Bytes: []byteList{}}
	for _, x := range list {
		token := likelyOf(t, x.Token)
		said := &token.Logprob
		var top likeliest
		if math.IsNaN(float64(token.Logprob)) {
			said = nil
		} else {
			for _, y := range x.Top {
				top = append(top, likelyOf(t, y))
			}
			top = append(top, token)
		}
		p.Tokens = append(p.Tokens, token.name())
		p.TokenLogprobs = append(p.TokenLogprobs, said)
		p.TopLogprobs = append(p.TopLogprobs, top)
		p.TextOffset = append(p.TextOffset, o.characters)
		p.Bytes = append(p.Bytes, token.Bytes)
		if o.prompt--; o.prompt >= 0 {
			o.add(token.Bytes)
		} else {
			o.add(t.Bytes(x.Token.ID)) // special tokens are not in the text
		}
	}
	return p
}

// promptTold is what is told of choice i's prompt before it is run, where that is asked
// for: its first token, which nothing says anything of.
func (r *run) promptTold(i int) (list []decoder.Logprobs, o offsets) {
	if r.params.promptLogprobs == nil {
		return nil, o
	}
	prompt := r.promptOf(i)
	unknown := decoder.Logprob{ID: prompt[0], Logprob: float32(math.NaN())}
	return []decoder.Logprobs{{Token: unknown}}, offsets{prompt: len(prompt)}
}

func (o *offsets) add(raw []byte) {
	o.part = append(o.part, raw...)
	for len(o.part) > 0 && utf8.FullRune(o.part) {
		_, n := utf8.DecodeRune(o.part)
		o.part = o.part[n:]
		o.characters++
	}
}
