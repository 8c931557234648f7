package decoder_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"windrow/decoder"
	"windrow/model"
)

// counter is a model that counts on: a row of token x predicts x + 1, and a
// mask as many more as it stands away from the prompt.
type counter struct{ mask int32 }

func (c counter) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	b.Spans[0].Cache.Stage(len(b.Tokens))
	var results []model.Result
	for _, w := range b.Want {
		row := w.Row
		next := b.Positions[row] + 1
		if b.Tokens[row] == c.mask {
			next--
		}
		results = append(results, model.Result{Argmax: next})
	}
	return results, nil
}

type digits struct{}

func (digits) Push(id int32) string { return fmt.Sprint(id, " ") }
func (digits) Flush() string        { return "" }

func ExampleGenerate() {
	o := decoder.DefaultOptions()
	o.Window, o.MaxTokens = 4, 20
	o.StopStrings = []string{" 9"}
	o.Vocabulary.MaskID = 99

	prompt := []int32{0, 1, 2}
	capacity, _ := decoder.CacheSize(len(prompt), o)
	cache := model.NewCountingCache(capacity) // Model.NewCache for a real model
	sum, err := decoder.Generate(context.Background(), counter{mask: 99}, cache, prompt, o, digits{}, decoder.Hooks{
		Step: func(s decoder.Step) {
			var row strings.Builder
			for _, slot := range s.Slots {
				if slot.Filled {
					fmt.Fprint(&row, slot.Token, " ")
				} else {
					row.WriteString("_ ")
				}
			}
			fmt.Fprintf(os.Stdout, "%-18s commits %v\n", row.String(), s.Committed)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%q, %s, %.2f tokens per forward\n", sum.Text, sum.FinishReason, sum.Stats.TokensPerForward())
	// Output:
	// 3 _ _ _ _          commits [3]
	// 4 5 6 7 _ _ _ _    commits [4 5 6 7]
	// 8 9 10 11 _ _ _ _  commits [8 9]
	// "3 4 5 6 7 8", stop, 2.33 tokens per forward
}
