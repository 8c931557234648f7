// Package grammar compiles a JSON schema, a GBNF grammar or a regular
// expression to an automaton over bytes, and says which tokens of a vocabulary
// may come next. There is no engine in it: a caller gives it tokens and takes
// bit sets.
//
//	v, err := grammar.NewVocabulary(tokens, grammar.VocabularyOptions{End: []int32{eos}})
//	g, err := grammar.CompileSchema(schema, grammar.Options{})
//	m := grammar.NewConstraint(g, v).Start()
//	err = m.Mask(allowed)     // the ids that may come next
//	ok := m.Advance(token)    // one of them
//
// A [Vocabulary] is made once for a model, a [Grammar] once for a schema, a
// [Constraint] once for both; a [Matcher] is where one sequence stands, and two
// words in size: a window of drafts is tried on a Clone, and forgotten with it.
//
// From text to mask:
//
//	schema_*.go, gbnf*.go, regex.go   read the text
//	runes.go, format.go, number.go    automata over characters; formats; bounds of numbers
//	build.go, encode.go, finish.go    the nodes: byte edges and calls of rules; left recursion refused
//	local.go, state.go                where a text stands: sets of nodes over return stacks, made when met
//	vocabulary.go, trie.go            tokens as tries; slices.go: tokens that are tested all at once
//	entry.go, mask.go, cache.go       masks: what needs no stack is kept, the rest is walked
//	segments.go                       counted repeats: one mask for many counts
//	matcher.go                        what a sequence uses
//
// Texts come from strangers: [Limits] bound size, depth, nodes and time, and
// what exceeds them ends in an error of one line. [Constraint] may be used by
// several goroutines at once; a Matcher by one.
package grammar
