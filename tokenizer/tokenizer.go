package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	sugarme "github.com/sugarme/tokenizer"
)

// Tokenizer is a tokenizer.json made ready, with what tokenizer_config.json
// says beside it. It does not change after New, and may be used by several
// goroutines at once.
type Tokenizer struct {
	// tokens are the tokens by id as the file writes them (byte-level
	// alphabet); "" where no token has the id. ids is the inverse.
	tokens []string
	ids    map[string]int32

	// rawAdded are matched in the text as it comes, normAdded after
	// normalization. special holds those hidden by skipSpecial.
	rawAdded, normAdded addedSet
	special             map[int32]bool

	nfc       bool
	splitters []splitter
	bpe       bpe

	config   config
	template chatTemplate

	sugarOnce sync.Once
	sugar     *sugarme.Tokenizer
}

// New reads a tokenizer from the contents of tokenizer.json and
// tokenizer_config.json. The second may be nil: then there is no chat template
// and EOS and Pad are unknown.
func New(tokenizerJSON, tokenizerConfigJSON []byte) (*Tokenizer, error) {
	return build(tokenizerJSON, tokenizerConfigJSON, nil, func(name string) string { return name })
}

func build(tokenizerJSON, tokenizerConfigJSON, template []byte, path func(string) string) (*Tokenizer, error) {
	t := &Tokenizer{special: make(map[int32]bool)}
	if err := t.parse(tokenizerJSON); err != nil {
		return nil, fmt.Errorf("%s: %w", path(tokenizerFile), err)
	}
	if tokenizerConfigJSON != nil {
		if err := t.parseConfig(tokenizerConfigJSON); err != nil {
			return nil, fmt.Errorf("%s: %w", path(configFile), err)
		}
	}
	if template != nil {
		t.template.source = string(template)
	}
	return t, nil
}

// The files of a model that a tokenizer is read from.
const (
	tokenizerFile = "tokenizer.json"
	configFile    = "tokenizer_config.json"
	templateFile  = "chat_template.jinja"
)

// Files is where a model's small files are read from.
type Files interface {
	// ReadFile returns a file by its plain name; an error that is
	// fs.ErrNotExist where it is missing. An error names the file.
	ReadFile(name string) ([]byte, error)
	// Path is how an error about a file's content names it.
	Path(name string) string
}

// Load reads the tokenizer of a model: tokenizer.json, and where they exist
// tokenizer_config.json and chat_template.jinja. The latter goes before a
// template in the former.
func Load(files Files) (*Tokenizer, error) {
	main, err := files.ReadFile(tokenizerFile)
	if err != nil {
		return nil, err
	}
	config, err := files.ReadFile(configFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	template, err := files.ReadFile(templateFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return build(main, config, template, files.Path)
}

// Size is one past the largest id that exists. Some ids below it may have no
// token; a model's head may have more rows than this.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// ID returns the id of a token as the file writes it, such as "<|im_end|>".
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Token returns the token with an id as the file writes it: added tokens as
// they are, others in the byte-level alphabet ("Ġthe" for " the").
func (t *Tokenizer) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(t.tokens) || t.tokens[id] == "" {
		return "", false
	}
	return t.tokens[id], true
}

// Special reports whether an id is of a special token: one that Decode leaves
// out when told to skip them.
func (t *Tokenizer) Special(id int32) bool { return t.special[id] }

// EOS returns the id of the token that ends a turn, by tokenizer_config.json.
func (t *Tokenizer) EOS() (int32, bool) { return t.named(t.config.eos) }

// Pad returns the id of the padding token, by tokenizer_config.json.
func (t *Tokenizer) Pad() (int32, bool) { return t.named(t.config.pad) }

func (t *Tokenizer) named(token string) (int32, bool) {
	if token == "" {
		return 0, false
	}
	return t.ID(token)
}
