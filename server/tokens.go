package server

import (
	"encoding/json"
	"net/http"
	"strings"

	"windrow/answer"
	"windrow/tokenizer"
)

// tokenize answers POST /tokenize: {content, add_special, parse_special, with_pieces}.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r)
	if err != nil {
		return err
	}
	content := f.text("content")
	if !f.has("content") {
		f.bad("content", "is missing")
	}
	f.boolean("add_special") // these models put nothing before a text
	special, pieces := f.boolean("parse_special"), f.isTrue("with_pieces")
	m, err := s.accept(w, r, f, f.text("model"))
	if err != nil {
		return err
	}
	t := m.Tokenizer
	encode := t.Encode
	if special != nil && !*special {
		encode = t.EncodePlain
	}
	ids, err := encode(content)
	if err != nil {
		return badValue("content", "%v", err)
	}
	if ids == nil {
		ids = []int32{}
	}
	if !pieces {
		writeJSON(w, http.StatusOK, map[string][]int32{"tokens": ids})
		return nil
	}
	type piece struct {
		ID    int32 `json:"id"`
		Piece any   `json:"piece"` // text, or bytes where it is half a character
	}
	list := make([]piece, len(ids))
	for i, id := range ids {
		list[i] = piece{id, pieceOf(t, id)}
	}
	writeJSON(w, http.StatusOK, map[string][]piece{"tokens": list})
	return nil
}

// pieceOf is a token's text; the bytes of one that is no whole characters are numbers.
func pieceOf(t *tokenizer.Tokenizer, id int32) any {
	text := t.Decode([]int32{id}, false)
	if !strings.ContainsRune(text, '\ufffd') {
		return text
	}
	return tokenBytes(t, id)
}

// detokenize answers POST /detokenize: {tokens}.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r)
	if err != nil {
		return err
	}
	var ids []int32
	raw := f.raw("tokens")
	if raw == nil {
		f.bad("tokens", "is missing")
	} else if json.Unmarshal(raw, &ids) != nil {
		f.bad("tokens", "want a list of token ids")
	}
	m, err := s.accept(w, r, f, f.text("model"))
	if err != nil {
		return err
	}
	for i, id := range ids {
		if id < 0 || int(id) >= m.Vocabulary {
			return badValue(index("tokens", i), "id %d: the model has ids 0 to %d", id, m.Vocabulary-1)
		}
	}
	writeJSON(w, http.StatusOK, map[string]string{"content": m.Tokenizer.Decode(ids, false)})
	return nil
}

// applyTemplate answers POST /apply-template with the prompt of a conversation, as text
// and as ids.
func (s *Server) applyTemplate(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r)
	if err != nil {
		return err
	}
	q := chatRequest{messages: readMessages(f), thinking: readThinking(f)}
	q.tools, q.choice = readTools(f)
	m, err := s.accept(w, r, f, f.text("model"))
	if err != nil {
		return err
	}
	ids, err := s.render(r, m, &q, answer.FormOf(m.Tokenizer.ChatTemplate()))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		Prompt string  `json:"prompt"`
		Tokens []int32 `json:"tokens"`
	}{m.Tokenizer.Decode(ids, false), ids})
	return nil
}
