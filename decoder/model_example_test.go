//go:build !windrow_nomodel

package decoder_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/decoder"
	"windrow/model"
	"windrow/models/tinygsm"
	"windrow/tokenizer"
)

// One answer of the embedded model, in a window of 6. It is the worked trace
// of docs/decoding.md, which says what happens in each forward.
func ExampleGenerate_wedlm() {
	trace(decoder.WeDLM, "Tom has 3 pens. How many pens are there in 4 boxes?")
	// Output:
	// rows   . . . . . .
	// fills  0 "Nothing", 1 " changes", 2 ",", 3 " so", 4 " Tom", 5 " has"
	// rows   "Nothing" " changes" "," " so" " Tom" " has" . . . . . .
	// commit 6
	// fills  0 " ", 1 "3", 3 ".\n", 4 "####", 5 " "
	// rows   " " "3" ".\n" "####" " " . . .
	// commit 2
	// fills  4 "3", 5 "<|im_end|>"
	// rows   ".\n" "####" " " "3" "<|im_end|>" .
	// fills  0 " pens"
	// rows   " pens" ".\n" "####" " " "3" "<|im_end|>" . . . . . .
	// commit 6
	// "Nothing changes, so Tom has 3 pens.\n#### 3"
	// 14 tokens, 5 forwards, 44 rows
}

// The same prompt where the drafts are verified: the answer is ar's, which the
// window alone did not find.
func ExampleGenerate_verified() {
	trace(decoder.Verified, "Tom has 3 pens. How many pens are there in 4 boxes?")
	// Output:
	// rows   "Nothing" . . . . . .
	// commit 1
	// fills  0 " changes", 1 ",", 2 " so", 3 " Tom", 4 " has", 5 " "
	// rows   " changes" "," " so" " Tom" " has" " " . . . . . .
	// commit 6
	// fills  0 "3"
	// rows   "3" . . . . . .
	// commit 1
	// fills  0 " pencils", 1 ".\n", 2 "####", 3 " ", 4 "3", 5 "<|im_end|>"
	// rows   " pencils" ".\n" "####" " " "3" "<|im_end|>"
	// commit 6
	// "Nothing changes, so Tom has 3 pencils.\n#### 3"
	// 14 tokens, 4 forwards, 32 rows
}

// trace answers greedily and prints the rows of each forward in packed order,
// "." for a mask, and what became of them.
func trace(mode decoder.Mode, question string) {
	m, tokens, vocabulary := open()
	prompt, err := tokens.EncodeChat(context.Background(), []tokenizer.Message{{Role: "user", Content: question}},
		tokenizer.ChatOptions{AddGenerationPrompt: true})
	if err != nil {
		log.Fatal(err)
	}
	o := decoder.DefaultOptions()
	o.Mode, o.Window, o.MaxTokens, o.Vocabulary = mode, 6, 60, vocabulary
	stop, _ := tokens.EOS()
	o.StopIDs = []int32{stop}

	capacity, maxRows := decoder.CacheSize(len(prompt), o)
	cache, err := m.NewCache(model.CacheOptions{Capacity: capacity, MaxRows: maxRows, DType: backend.KVF32})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	quoted := func(id int32) string { return fmt.Sprintf("%q", tokens.Decode([]int32{id}, false)) }
	step := func(s decoder.Step) {
		var rows, masks, fills []string
		for _, slot := range s.Slots {
			if slot.Filled {
				rows = append(rows, quoted(slot.Token))
			} else {
				masks = append(masks, ".")
			}
		}
		for _, f := range s.Filled {
			fills = append(fills, fmt.Sprint(f.Slot, " ", quoted(f.Token)))
		}
		fmt.Println("rows  ", strings.Join(append(rows, masks...), " "))
		if len(s.Committed) > 0 {
			fmt.Println("commit", len(s.Committed))
		}
		if len(fills) > 0 {
			fmt.Println("fills ", strings.Join(fills, ", "))
		}
	}
	sum, err := decoder.Generate(context.Background(), m, cache, prompt, o, tokens.NewStream(true), decoder.Hooks{Step: step})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n%d tokens, %d forwards, %d rows\n", sum.Text, sum.Stats.Tokens, sum.Stats.Forwards, sum.Stats.Rows)
}

// open loads the embedded model in exact arithmetic, which gives the same
// tokens on every processor.
func open() (*model.Model, *tokenizer.Tokenizer, decoder.Vocabulary) {
	source, err := checkpoint.New(tinygsm.Files())
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := tokenizer.Load(source)
	if err != nil {
		log.Fatal(err)
	}
	b, err := cpu.New(cpu.Options{Exact: true})
	if err != nil {
		log.Fatal(err)
	}
	v := decoder.Vocabulary{Size: int32(tokens.Size()), MaskID: source.Config().MaskTokenID}
	m, err := model.Load(b, source, model.Barring(v.Size, v.MaskID))
	if err != nil {
		log.Fatal(err)
	}
	return m, tokens, v
}
