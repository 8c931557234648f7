// Package tokenizer turns text into the ids a model was trained on and back,
// and renders conversations with a model's chat template.
//
// It reads the tokenizer.json of byte-level BPE models (Qwen2, Qwen3, WeDLM,
// GPT-2 and their kin) and gives the same ids and the same text as Hugging
// Face's Rust engine: the tests compare both on thousands of strings. Other
// kinds of tokenizer (Unigram, WordPiece, byte fallback) are refused by name.
//
// Text goes through these steps, each in a file of its own:
//
//	added.go      cut out added tokens such as <|im_start|>
//	nfc.go        bring the text between them into NFC, as the engine's tables do
//	split.go      cut it into words; qwen.go is Qwen's expression by hand
//	bpe.go        merge the bytes of each word
//
// decode.go and stream.go lead back. [Tokenizer.Sugar] offers the same steps
// behind the interfaces of github.com/sugarme/tokenizer.
//
// A Tokenizer may be used by several goroutines at once; a [Stream] by one.
package tokenizer
