package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// config is what is used of tokenizer_config.json.
type config struct {
	bos, eos, pad, unknown string
}

type configJSON struct {
	BOS          tokenName            `json:"bos_token"`
	EOS          tokenName            `json:"eos_token"`
	Pad          tokenName            `json:"pad_token"`
	Unknown      tokenName            `json:"unk_token"`
	ChatTemplate json.RawMessage      `json:"chat_template"`
	Added        map[string]addedJSON `json:"added_tokens_decoder"`
}

// tokenName is a token given as a string, as an object with its content, or
// as null.
type tokenName string

// UnmarshalJSON implements json.Unmarshaler.
func (n *tokenName) UnmarshalJSON(data []byte) error {
	var object struct {
		Content string `json:"content"`
	}
	if len(data) > 0 && data[0] == '{' {
		err := json.Unmarshal(data, &object)
		*n = tokenName(object.Content)
		return err
	}
	return json.Unmarshal(data, (*string)(n))
}

// parseConfig reads tokenizer_config.json: the names of the control tokens,
// the chat template, and added tokens that tokenizer.json does not list.
func (t *Tokenizer) parseConfig(data []byte) error {
	var c configJSON
	if err := json.Unmarshal(data, &c); err != nil {
		return describeJSON(err, len(data))
	}
	t.config = config{string(c.BOS), string(c.EOS), string(c.Pad), string(c.Unknown)}

	// In order of ids, so that which of two faults is reported does not vary.
	var added []addedJSON
	for key, a := range c.Added {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return fmt.Errorf("added_tokens_decoder: key %.60q is not a token id", key)
		}
		a.ID = id
		added = append(added, a)
	}
	slices.SortFunc(added, func(a, b addedJSON) int { return int(a.ID - b.ID) })
	for _, a := range added {
		if _, known := t.rawAdded.byText[a.Content]; known {
			continue
		}
		if _, known := t.normAdded.byText[t.normalize(a.Content)]; known {
			continue
		}
		if err := t.addToken(a); err != nil {
			return fmt.Errorf("added_tokens_decoder: %w", err)
		}
	}

	source, err := defaultTemplate(c.ChatTemplate)
	if err != nil {
		return fmt.Errorf("chat_template: %w", err)
	}
	t.template.source = source
	return nil
}

// defaultTemplate takes the template that is a string, or of a list of named
// ones the one named "default". It returns "" where there is none.
func defaultTemplate(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var source string
	if json.Unmarshal(raw, &source) == nil {
		return source, nil
	}
	var named []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if json.Unmarshal(raw, &named) != nil {
		return "", errors.New("a string or a list of named templates is expected")
	}
	for _, n := range named {
		if n.Name == "default" {
			return n.Template, nil
		}
	}
	return "", nil
}
