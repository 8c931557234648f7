package checkpoint

import (
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
)

// Digest names the model by what its files hold: the config, the tokenizer's files,
// names, shapes and types of all weights, and some bytes of each; of weights that are
// converted when they are loaded, of each part that the files have. Models of an equal
// digest turn equal conversations into equal prompts, and these into equal logits. No
// weight is read but for those bytes.
func (c *Checkpoint) Digest() string {
	c.digesting.Do(func() { c.digest = c.makeDigest() })
	return c.digest
}

func (c *Checkpoint) makeDigest() string {
	h := sha256.New()
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
		data, _ := c.File(name)
		fmt.Fprintln(h, name, len(data))
		h.Write(data)
	}
	digestWeights(h, c)
	for _, t := range c.stored {
		fmt.Fprintln(h, t.Name, t.DType, t.Shape)
		digestSamples(h, t.Data)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// DigestWeights names weights as [Checkpoint.Digest] does, without any files, such as
// random ones.
func DigestWeights(src Source) string {
	h := sha256.New()
	digestWeights(h, src)
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// digestWeights writes what a digest is made of.
func digestWeights(h io.Writer, src Source) {
	for _, name := range slices.Sorted(slices.Values(src.Names())) {
		if t, ok := src.Tensor(name); ok {
			fmt.Fprintln(h, name, t.DType, t.Shape, t.Group, len(t.Data))
			digestSamples(h, t.Data)
		}
	}
}

// digestSamples writes some bytes of a tensor.
func digestSamples(h io.Writer, data []byte) {
	const sample = 64
	for _, at := range []int{0, len(data) / 2, len(data) - sample} {
		at = max(at, 0)
		h.Write(data[at:min(at+sample, len(data))])
	}
}
