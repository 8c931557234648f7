package tokenizer

type chatTemplate struct{ source string }
