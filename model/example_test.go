//go:build !windrow_nomodel

package model_test

import (
	"context"
	"fmt"
	"log"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/model"
	"windrow/models/tinygsm"
	"windrow/tokenizer"
)

// One forward of the embedded model on the CPU: the rows of a prompt, and what
// its last row predicts. Commit then makes their keys and values permanent.
func Example() {
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
	m, err := model.Load(b, source)
	if err != nil {
		log.Fatal(err)
	}

	prompt, err := tokens.Encode("There are 5 * 9 = ")
	if err != nil {
		log.Fatal(err)
	}
	rows := len(prompt)
	cache, err := m.NewCache(model.CacheOptions{Capacity: rows, MaxRows: rows, DType: backend.KVF32})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	batch := &model.Batch{
		Tokens: prompt,
		Spans:  []model.Span{{Cache: cache, Rows: rows}},
		Want:   []model.Wanted{{Row: int32(rows - 1)}},
	}
	for i := range prompt {
		batch.Positions = append(batch.Positions, int32(i))
	}
	results, err := m.Forward(context.Background(), batch)
	if err != nil {
		log.Fatal(err)
	}
	if err := cache.Commit(rows); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d layers, %d permanent tokens; the next token is %q\n",
		m.Config().Layers, cache.Base(), tokens.Decode([]int32{results[0].Argmax}, false))
	// Output:
	// 8 layers, 9 permanent tokens; the next token is "4"
}
