package checkpoint

import (
	"crypto/sha256"
	"fmt"
	"io"
)

// Digest names the model by what its files hold: the config, the tokenizer's files,
// names, shapes and types of all weights, and some bytes of each. Models of an equal
// digest turn equal conversations into equal prompts, and these into equal logits. No
// weight is read but for those bytes.
//
// It is "" for a model with weights that are converted when they are loaded, of which
// no bytes are known yet.
func (c *Checkpoint) Digest() string {
	h := sha256.New()
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
		data, _ := c.File(name)
		fmt.Fprintln(h, name, len(data))
		h.Write(data)
	}
	if !digestWeights(h, c) {
		return ""
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// DigestWeights names weights as [Checkpoint.Digest] does, without any files: of random
// weights, or of those that are converted when they are loaded, which have names, types and
// shapes alone.
func DigestWeights(src Source) string {
	h := sha256.New()
	digestWeights(h, src)
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// digestWeights writes what a digest is made of, and reports whether all of it was known.
func digestWeights(h io.Writer, src Source) (known bool) {
	const sample = 64
	known = true
	for _, name := range src.Names() {
		t, ok := src.Tensor(name)
		if !ok {
			continue
		}
		known = known && t.Make == nil
		n := len(t.Data)
		fmt.Fprintln(h, name, t.DType, t.Shape, t.Group, n)
		for _, at := range []int{0, n / 2, n - sample} {
			at = max(at, 0)
			h.Write(t.Data[at:min(at+sample, n)])
		}
	}
	return known
}
