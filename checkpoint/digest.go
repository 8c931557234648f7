package checkpoint

import (
	"crypto/sha256"
	"fmt"
)

// Digest names the model by what its files hold: the config, the tokenizer's files,
// names, shapes and types of all weights, and some bytes of each. Models of an equal
// digest turn equal conversations into equal prompts, and these into equal logits. No
// weight is read but for those bytes.
//
// It is "" for a model with weights that are converted when they are loaded, of which
// no bytes are known yet.
func (c *Checkpoint) Digest() string {
	const sample = 64
	h := sha256.New()
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
		data, _ := c.File(name)
		fmt.Fprintln(h, name, len(data))
		h.Write(data)
	}
	for _, name := range c.names {
		t := c.tensors[name]
		if t.Make != nil {
			return ""
		}
		n := len(t.Data)
		fmt.Fprintln(h, name, t.DType, t.Shape, t.Group, n)
		for _, at := range []int{0, n / 2, n - sample} {
			at = max(at, 0)
			h.Write(t.Data[at:min(at+sample, n)])
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}
