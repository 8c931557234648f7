package schedule

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"windrow/decoder"
)

// BenchmarkPass is the host's time of a pass in which sequences share a forward and choose
// their rows, all of it: the script that answers in the model's place takes some of it.
func BenchmarkPass(b *testing.B) {
	for _, clients := range []int{2, 8, 32} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			s := &scripted{ease: .9, cost: loadTables(b)["staircase"], at: time.Unix(0, 0)}
			o := decoder.DefaultOptions()
			o.Vocabulary.MaskID, o.Mode, o.Window, o.MaxTokens = scriptedMask, decoder.Verified, 24, 4000
			o.Cost, o.Experience = s.cost, decoder.NewExperience()
			x := idle(s, Options{Prefixes: -1, Now: s.now})
			ctx, n := context.Background(), 0
			var streams []*Stream
			for b.Loop() {
				for ; len(streams) < clients; n++ {
					stream, err := x.Submit(ctx, Request{Prompt: make([]int32, 1+mixed(uint64(n))%40), Options: o, Salt: fmt.Sprint(n)})
					if err != nil {
						b.Fatal(err)
					}
					streams = append(streams, stream)
				}
				x.admit(ctx)
				x.pass(ctx)
				streams = slices.DeleteFunc(streams, func(s *Stream) bool { return s.done })
			}
		})
	}
}
