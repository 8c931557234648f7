package grammar_test

import (
	"fmt"
	"log"

	"windrow/grammar"
)

// A model's tokens are bytes by id. Here there are a few.
var tokens = [][]byte{0: []byte(`{"ok`), 1: []byte(`":`), 2: []byte(` true`), 3: []byte(` false`), 4: []byte(`}`), 5: []byte(`[`), 6: []byte(`<end>`)}

func Example() {
	v, err := grammar.NewVocabulary(tokens, grammar.VocabularyOptions{End: []int32{6}})
	if err != nil {
		log.Fatal(err)
	}
	schema := `{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}`
	g, err := grammar.CompileSchema([]byte(schema), grammar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	m := grammar.NewConstraint(g, v).Start()
	allowed := make([]uint64, v.Words())
	for _, token := range []int32{0, 1, 2, 4, 6} {
		if err := m.Mask(allowed); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%07b %q\n", allowed[0], tokens[token])
		if !m.Advance(token) {
			log.Fatal("refused")
		}
	}
	fmt.Println(m.Done())
	// Output:
	// 0000001 "{\"ok"
	// 0000010 "\":"
	// 0001100 " true"
	// 0010000 "}"
	// 1000000 "<end>"
	// true
}

// What must come next need not be computed: its tokens are drafts that hold.
func ExampleMatcher_Forced() {
	v, err := grammar.NewVocabulary(tokens, grammar.VocabularyOptions{End: []int32{6}})
	if err != nil {
		log.Fatal(err)
	}
	g, err := grammar.CompileGBNF(`root ::= "The answer is " ("yes" | "no") "."`, grammar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	m := grammar.NewConstraint(g, v).Start()
	fmt.Printf("%q\n", m.Forced())
	draft := m.Clone() // m stays where it is
	fmt.Println(draft.AdvanceBytes([]byte("The answer is y")))
	fmt.Printf("%q\n", draft.Forced())
	// Output:
	// "The answer is "
	// true
	// "es."
}

func ExampleCompileSchema_refused() {
	_, err := grammar.CompileSchema([]byte(`{"properties": {"x": {"not": {"type": "null"}}}}`), grammar.Options{})
	fmt.Println(err)
	// Output:
	// #/properties/x/not is not supported
}
