// Package architecture says what models are made of: the config of one, and for
// each architecture a table of its parameters. What a tensor is called, its
// shape, whether it may be absent, how devices share it, whether it may be
// quantised: loading, random weights, GGUF files, quantisation and inspection
// all read it there. A table has no numbers of a model and no code of a forward.
package architecture
