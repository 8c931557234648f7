package schedule_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/conformance/decodertest"
	"windrow/decoder"
	"windrow/engine"
	"windrow/schedule"
	"windrow/synthetic"
)

// BenchmarkFirstToken measures the time to the first token of prompts that nobody has
// asked before, alone and eight at once (to the last one's), and of the next turn, with
// 40 new tokens, of a conversation in memory. WINDROW_BENCH_SHAPE is the model's shape
// (tiny-gsm), with weights of 4 bits where it is another.
func BenchmarkFirstToken(b *testing.B) {
	shape, dt := os.Getenv("WINDROW_BENCH_SHAPE"), backend.Affine4
	if shape == "" {
		shape, dt = "tiny-gsm", backend.BF16
	}
	config, ok := synthetic.ShapeConfig(shape)
	if !ok {
		b.Fatalf("no shape %q", shape)
	}
	e, err := engine.OpenSource(b.Context(), shape, synthetic.RandomSource(config, dt, 1), engine.Options{Backend: decodertest.Device()})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	r := rand.New(rand.NewPCG(1, 1))
	ids := func(n int) []int32 {
		list := make([]int32, n)
		for i := range list {
			list[i] = r.Int32N(4000)
		}
		return list
	}
	first := func(s *schedule.Scheduler, prompts ...[]int32) time.Duration {
		began := time.Now()
		var streams []*schedule.Stream
		for _, p := range prompts {
			stream, err := s.Submit(b.Context(), schedule.Request{
				Prompt: p, Options: decoder.Options{Mode: decoder.AR, MaxTokens: 1, Vocabulary: decoder.Vocabulary{MaskID: -1}},
			})
			if err != nil {
				b.Fatal(err)
			}
			streams = append(streams, stream)
		}
		for _, stream := range streams {
			for err := error(nil); err == nil; {
				_, err = stream.Next(context.Background())
			}
		}
		return time.Since(began)
	}
	for _, n := range []int{20, 100, 300, 600} {
		b.Run(fmt.Sprintf("%s/tokens=%d", shape, n), func(b *testing.B) {
			var alone, eight, turn []time.Duration
			for b.Loop() {
				s := schedule.New(e, schedule.Options{})
				for i := range 12 { // the first ones load kernels
					talk := ids(n)
					a, t := first(s, talk), first(s, slices.Concat(talk, ids(40)))
					w := first(s, ids(n), ids(n), ids(n), ids(n), ids(n), ids(n), ids(n), ids(n))
					if i > 2 {
						alone, turn, eight = append(alone, a), append(turn, t), append(eight, w)
					}
				}
				s.Close()
			}
			for name, list := range map[string][]time.Duration{"alone": alone, "eight": eight, "turn": turn} {
				slices.Sort(list)
				b.Logf("%d tokens, %s: %v (%v–%v)", n, name, list[len(list)/2], list[0], list[len(list)-1])
				b.ReportMetric(float64(list[len(list)/2].Microseconds())/1000, name+"-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
