//go:build !windrow_nomodel

package eval_test

import (
	"context"
	"fmt"
	"log"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/decoder"
	"windrow/eval"
	"windrow/model"
	"windrow/models/tinygsm"
	"windrow/tokenizer"
)

// runner answers with a loaded model: the usual form of an eval.Runner.
type runner struct {
	model  *model.Model
	tokens *tokenizer.Tokenizer
}

func (r runner) Run(ctx context.Context, p eval.Prompt, o decoder.Options) (decoder.Summary, error) {
	prompt, err := r.tokens.EncodeChat(ctx, p.Messages, tokenizer.ChatOptions{AddGenerationPrompt: true})
	if err != nil {
		return decoder.Summary{}, err
	}
	capacity, maxRows := decoder.CacheSize(len(prompt), o)
	cache, err := r.model.NewCache(model.CacheOptions{Capacity: capacity, MaxRows: maxRows, DType: backend.KVF32})
	if err != nil {
		return decoder.Summary{}, err
	}
	defer cache.Close()
	return decoder.Generate(ctx, r.model, cache, prompt, o, r.tokens.NewStream(true), decoder.Hooks{})
}

// Three held-out problems of the embedded model's kind, in two modes.
func ExampleRunGSM8K() {
	source, err := checkpoint.New(tinygsm.Files())
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	tokens, err := tokenizer.Load(source)
	if err != nil {
		log.Fatal(err)
	}
	b, err := cpu.New(cpu.Options{Exact: true})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	m, err := model.Load(b, source, model.Barring(int32(tokens.Size()), source.Config().MaskTokenID))
	if err != nil {
		log.Fatal(err)
	}
	data, err := eval.Load("tinygsm")
	if err != nil {
		log.Fatal(err)
	}

	o := decoder.DefaultOptions()
	o.MaxTokens = 160
	stop, _ := tokens.EOS()
	o.StopIDs = []int32{stop}
	o.Vocabulary = decoder.Vocabulary{Size: int32(tokens.Size()), MaskID: source.Config().MaskTokenID}
	tau := float32(0.4)
	report, err := eval.RunGSM8K(context.Background(), runner{m, tokens}, eval.GSM8K{
		Data: data, Limit: 3, Options: o,
		Settings: []eval.Setting{
			{Mode: decoder.AR},
			{Mode: decoder.Verified, Window: 16, EntropyThreshold: &tau, PosPenalty: 0.02},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range report.Settings {
		fmt.Printf("%-25s %d of %d correct, %d tokens in %d forwards\n", s.Name, s.Correct, s.N, s.Tokens, s.Forwards)
	}
	// Output:
	// ar                        3 of 3 correct, 136 tokens in 133 forwards
	// verified W16 τ0.4 λ0.02   3 of 3 correct, 136 tokens in 12 forwards
}

func ExampleAnswer() {
	fmt.Println(eval.Answer("She pays 3 * $450 = $1,350.\n#### 1,350.00"))
	fmt.Println(eval.Answer("That makes 7 chairs in all."))
	// Output:
	// 1350
	// 7
}
