//go:build !windrow_nomodel

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"windrow/decoder"
	"windrow/engine"
	"windrow/tokenizer"
)

// The embedded model answers a question. With the zero decoder.Options it runs in
// verified mode, whose text is ar's, in a window that adapts to this machine.
func ExampleEngine_Generate() {
	ctx := context.Background()
	// A program leaves Measurements out, so that what is measured is kept.
	e, err := engine.Open(ctx, "", engine.Options{Backend: "auto", Measurements: engine.Measurements{Folder: engine.NoFolder}})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	messages := []tokenizer.Message{{Role: "user", Content: "What is 17 + 25?"}}
	for event, err := range e.Generate(ctx, messages, decoder.Options{}) {
		if err != nil {
			log.Fatal(err)
		}
		if text, ok := event.(decoder.Text); ok {
			fmt.Print(text)
		}
	}
	// Output:
	// 17 + 25 = 42.
	// #### 42
}

// Two turns of a conversation: the second computes only what is new.
func ExampleConversation() {
	ctx := context.Background()
	e, err := engine.Open(ctx, "", engine.Options{Backend: engine.CPU})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	c := e.NewConversation()
	defer c.Close()
	var messages []tokenizer.Message
	for _, question := range []string{"What is 17 + 25?", "What is 3 + 4?"} {
		messages = append(messages, tokenizer.Message{Role: "user", Content: question})
		for _, err := range c.Generate(ctx, messages, decoder.Options{Mode: decoder.AR}) {
			if err != nil {
				log.Fatal(err)
			}
		}
		sum := c.Summary()
		fmt.Printf("%q, %d of %d prompt tokens were held\n", sum.Text, sum.Stats.CachedTokens, sum.Stats.PromptTokens)
		messages = append(messages, tokenizer.Message{Role: "assistant", Content: sum.Text})
	}
	// Output:
	// "17 + 25 = 42.\n#### 42", 0 of 18 prompt tokens were held
	// "3 + 4 = 7.\n#### 7", 33 of 51 prompt tokens were held
}

// What does not fit is an error with its numbers.
func ExampleContextError() {
	ctx := context.Background()
	e, err := engine.Open(ctx, "", engine.Options{Backend: engine.CPU})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	_, err = e.Complete(decoder.Options{MaxTokens: 4000}, 100)
	var long *engine.ContextError
	if errors.As(err, &long) {
		fmt.Println(long.PromptTokens, "+", long.MaxTokens, ">", long.Context)
	}
	fmt.Println(err)
	// Output:
	// 100 + 4000 > 4096
	// the prompt has 100 tokens and 4000 are to be generated, the context of tiny-gsm is 4096
}
