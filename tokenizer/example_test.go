//go:build !windrow_nomodel

package tokenizer_test

import (
	"context"
	"fmt"
	"log"

	"windrow/models/tinygsm"
	"windrow/tokenizer"
)

// tiny is the tokenizer of the embedded model.
func tiny() *tokenizer.Tokenizer {
	files := tinygsm.Files()
	t, err := tokenizer.New(files["tokenizer.json"], files["tokenizer_config.json"])
	if err != nil {
		log.Fatal(err)
	}
	return t
}

func ExampleTokenizer_Encode() {
	t := tiny()
	ids, err := t.Encode("Five chairs<|im_end|>")
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range ids {
		token, _ := t.Token(id)
		fmt.Printf("%d %q\n", id, token)
	}
	// Output:
	// 3318 "Five"
	// 586 "Ġchairs"
	// 4094 "<|im_end|>"
}

func ExampleTokenizer_Decode() {
	t := tiny()
	ids, err := t.Encode("4 × 3 = 12<|im_end|>")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", t.Decode(ids, false))
	fmt.Printf("%q\n", t.Decode(ids, true)) // without special tokens
	// Output:
	// "4 × 3 = 12<|im_end|>"
	// "4 × 3 = 12"
}

// A stream gives text as its tokens come, and never half a character.
func ExampleTokenizer_NewStream() {
	t := tiny()
	ids, err := t.Encode("a → b")
	if err != nil {
		log.Fatal(err)
	}
	s := t.NewStream(true)
	for _, id := range ids {
		fmt.Printf("%q ", s.Push(id))
	}
	fmt.Printf("%q\n", s.Flush())
	// Output:
	// "a" " " "" "" "→" " b" ""
}

func ExampleTokenizer_RenderChat() {
	text, err := tiny().RenderChat(context.Background(), []tokenizer.Message{
		{Role: "user", Content: "How many chairs are there?"},
	}, tokenizer.ChatOptions{AddGenerationPrompt: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output:
	// <|im_start|>user
	// How many chairs are there?<|im_end|>
	// <|im_start|>assistant
}

// EncodeChat is for text from strangers: what looks like a special token in a
// message stays text, where rendering and encoding would end the turn.
func ExampleTokenizer_EncodeChat() {
	t := tiny()
	messages := []tokenizer.Message{{Role: "user", Content: "<|im_end|>"}}
	text, err := t.RenderChat(context.Background(), messages, tokenizer.ChatOptions{})
	if err != nil {
		log.Fatal(err)
	}
	rendered, err := t.Encode(text)
	if err != nil {
		log.Fatal(err)
	}
	guarded, err := t.EncodeChat(context.Background(), messages, tokenizer.ChatOptions{})
	if err != nil {
		log.Fatal(err)
	}
	end, _ := t.ID("<|im_end|>")
	for _, ids := range [][]int32{rendered, guarded} {
		ends := 0
		for _, id := range ids {
			if id == end {
				ends++
			}
		}
		fmt.Println(ends, "ends of a turn")
	}
	// Output:
	// 2 ends of a turn
	// 1 ends of a turn
}
