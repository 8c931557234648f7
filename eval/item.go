package eval

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"windrow/decoder"
)

// Item is one answered problem in one setting: a line of an output file.
type Item struct {
	Index      int    `json:"index"`
	Question   string `json:"question"`
	Reference  string `json:"reference"`
	Prediction string `json:"prediction"` // "": no number in the text
	Correct    bool   `json:"correct"`
	Text       string `json:"text"`
	decoder.Stats
	Setting
	FinishReason decoder.FinishReason `json:"finish_reason"`
	// TokensHash is equal where all generated ids are equal, stop id included.
	TokensHash string `json:"tokens_hash"`
	// Run tells apart files of other data, models and options: see fingerprint.
	Run string `json:"run,omitempty"`
}

// newItem judges a generation.
func newItem(p Problem, s Setting, sum decoder.Summary, run string) Item {
	// JSON replaces broken UTF-8 when written; what is reported must be what
	// is resumed.
	text := strings.ToValidUTF8(sum.Text, "\ufffd")
	prediction := Answer(text)
	return Item{
		Index: p.Index, Question: p.Question, Reference: p.Reference,
		Prediction: prediction, Correct: Correct(prediction, p.Reference), Text: text,
		Stats: sum.Stats, Setting: s, FinishReason: sum.FinishReason,
		TokensHash: hashTokens(sum.Tokens), Run: run,
	}
}

func hashTokens(ids []int32) string {
	h := sha256.New()
	var b [4]byte
	for _, id := range ids {
		binary.LittleEndian.PutUint32(b[:], uint32(id))
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// line is the item as one line of JSON, newline included.
func (it Item) line() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(it); err != nil {
		return nil, fmt.Errorf("item %d: %w", it.Index, err)
	}
	if b.Len() > maxLine {
		return nil, fmt.Errorf("item %d: its line has %d bytes, more than %d", it.Index, b.Len(), maxLine)
	}
	return b.Bytes(), nil
}

// parseItem reads a line and checks what can be checked without its data set.
func parseItem(line []byte) (Item, error) {
	var it Item
	if err := json.Unmarshal(line, &it); err != nil {
		return Item{}, jsonError(err)
	}
	if it.Run == "" || it.TokensHash == "" || it.Question == "" || it.Mode == "" {
		return Item{}, errors.New("not an item of an evaluation")
	}
	if err := it.check(); err != nil {
		return Item{}, err
	}
	it.Setting = it.canonical()
	for _, count := range []int{it.Index, it.Tokens, it.Forwards, it.Rows, it.Drafts, it.Accepted, it.PromptTokens, it.CachedTokens} {
		if count < 0 || count > 1<<40 {
			return Item{}, fmt.Errorf("count %d: want 0 or more", count)
		}
	}
	for _, s := range []float64{it.PrefillSeconds, it.DecodeSeconds} {
		if !(s >= 0 && s < 1e12) {
			return Item{}, fmt.Errorf("seconds %v: want 0 or more", s)
		}
	}
	return it, nil
}

// itemKey is what may occur once in an output file.
type itemKey struct {
	index   int
	setting string
}

func (it Item) key() itemKey { return itemKey{it.Index, it.Name()} }

// extractionVersion changes when Answer does: old files hold old judgements.
const extractionVersion = 1

// fingerprint is "data.model.options", each part a hash: answers are only
// worth resuming where all three are the same. The settings compared, the
// limit and the offset are left out, so a file can grow in both directions.
func fingerprint(d *Dataset, model string, options any) (string, error) {
	o, err := json.Marshal(options)
	if err != nil {
		return "", fmt.Errorf("decoding options: %w", err)
	}
	short := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:4])
	}
	return fmt.Sprintf("%s.%s.%s", d.Hash(), short(model), short(fmt.Sprintf("%d %s", extractionVersion, o))), nil
}

// compareRuns says what two runs do not share.
func compareRuns(found, want string) error {
	if found == want {
		return nil
	}
	f, w := strings.Split(found, "."), strings.Split(want, ".")
	if len(f) != len(w) {
		return fmt.Errorf("made by another version (run %.40q)", found)
	}
	var other []string
	for i, what := range []string{"data", "model", "options"} {
		if f[i] != w[i] {
			other = append(other, what)
		}
	}
	return fmt.Errorf("made with other %s than this run", strings.Join(other, " and "))
}
