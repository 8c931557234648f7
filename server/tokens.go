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
	if err := s.ignored(w, f); err != nil {
		return err
	}
	t := s.model.Tokenizer
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
	for i, id := range ids {
		if id < 0 || int(id) >= s.model.Vocabulary {
			f.bad(index("tokens", i), "id %d: the model has ids 0 to %d", id, s.model.Vocabulary-1)
		}
	}
	if err := s.ignored(w, f); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]string{"content": s.model.Tokenizer.Decode(ids, false)})
	return nil
}

// applyTemplate answers POST /apply-template with the prompt of a conversation.
func (s *Server) applyTemplate(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r)
	if err != nil {
		return err
	}
	q := chatRequest{messages: readMessages(f), tools: readTools(f), thinking: readThinking(f)}
	f.raw("model")
	if err := s.ignored(w, f); err != nil {
		return err
	}
	if q.thinking == nil && s.model.NoThink {
		q.thinking = new(bool)
	}
	ids, err := s.render(r, &q, answer.FormOf(s.model.Tokenizer.ChatTemplate()))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]string{"prompt": s.model.Tokenizer.Decode(ids, false)})
	return nil
}
