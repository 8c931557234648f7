package clients

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	other "github.com/sashabaranov/go-openai"
)

const hall = "A hall has 5 rows with 9 chairs in each row. How many chairs are there?"

func ask(more ...func(*openai.ChatCompletionNewParams)) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{Model: "tiny-gsm", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(hall)}, MaxCompletionTokens: openai.Int(60)}
	for _, change := range more {
		change(&p)
	}
	return p
}

func program(t *testing.T) openai.Client {
	t.Helper()
	return openai.NewClient(option.WithBaseURL(servers["binary"]+"/v1"), option.WithAPIKey("any"), option.WithMaxRetries(0))
}

// TestModels: clients list the model, and get it by name.
func TestModels(t *testing.T) {
	client := program(t)
	list, err := client.Models.List(t.Context())
	if err != nil || len(list.Data) != 1 || list.Data[0].ID != "tiny-gsm" {
		t.Errorf("%v %v", list, err)
	}
	if m, err := client.Models.Get(t.Context(), "tiny-gsm"); err != nil || m.OwnedBy == "" || m.Created == 0 {
		t.Errorf("%v %v", m, err)
	}
	config := other.DefaultConfig("any")
	config.BaseURL = servers["binary"] + "/v1"
	if list, err := other.NewClientWithConfig(config).ListModels(t.Context()); err != nil || len(list.Models) != 1 {
		t.Errorf("%v %v", list, err)
	}
}

// TestSeeds: a seed gives the same text again, streamed too, and choices of their own.
func TestSeeds(t *testing.T) {
	client := program(t)
	warm := func(p *openai.ChatCompletionNewParams) {
		p.Temperature, p.Seed, p.N = openai.Float(3), openai.Int(7), openai.Int(2)
	}
	first, err := client.Chat.Completions.New(t.Context(), ask(warm))
	if err != nil || len(first.Choices) != 2 {
		t.Fatal(first, err)
	}
	if first.Choices[0].Message.Content == first.Choices[1].Message.Content {
		t.Errorf("both choices are %q", first.Choices[0].Message.Content)
	}
	stream := client.Chat.Completions.NewStreaming(t.Context(), ask(warm))
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			t.Fatal("the accumulator refused a chunk")
		}
	}
	if err := stream.Err(); err != nil || len(all.Choices) != 2 {
		t.Fatal(err)
	}
	for i, c := range first.Choices {
		if all.Choices[i].Message.Content != c.Message.Content || all.SystemFingerprint != first.SystemFingerprint {
			t.Errorf("choice %d: %q, streamed %q", i, c.Message.Content, all.Choices[i].Message.Content)
		}
	}
}

// TestLogprobs: a client gets how likely each token was, the same in ar and verified;
// the bytes of the tokens are the text.
func TestLogprobs(t *testing.T) {
	client := program(t)
	likely := func(p *openai.ChatCompletionNewParams) {
		p.Logprobs, p.TopLogprobs, p.Temperature = openai.Bool(true), openai.Int(3), openai.Float(0)
	}
	var before string
	for _, mode := range []string{"ar", "verified"} {
		reply, err := client.Chat.Completions.New(t.Context(), ask(likely), option.WithJSONSet("mode", mode))
		if err != nil {
			t.Fatal(err)
		}
		c := reply.Choices[0]
		var text []byte
		for _, x := range c.Logprobs.Content {
			if len(x.TopLogprobs) != 3 || x.Logprob > 0 || x.TopLogprobs[0].Logprob < x.Logprob {
				t.Errorf("%s: %v", mode, x)
			}
			for _, b := range x.Bytes {
				text = append(text, byte(b))
			}
		}
		if string(text) != c.Message.Content || len(text) == 0 {
			t.Errorf("%s: the bytes are %q, the text %q", mode, text, c.Message.Content)
		}
		now := c.Logprobs.RawJSON()
		if before != "" && now != before {
			t.Errorf("verified has %s, ar %s", now, before)
		}
		before = now
	}
}

// TestLeaving: a client that leaves the program in mid-stream frees its place.
func TestLeaving(t *testing.T) {
	client := program(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	long := func(p *openai.ChatCompletionNewParams) { p.MaxCompletionTokens = openai.Int(4000) }
	stream := client.Chat.Completions.NewStreaming(ctx, ask(long), option.WithJSONSet("ignore_eos", true), option.WithJSONSet("mode", "ar"))
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	soon, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	before := generated(t)
	if !running(soon, servers["binary"], func(n int) bool { return n == 1 }) {
		t.Error("it does not run")
	}
	leave()
	if !running(soon, servers["binary"], func(n int) bool { return n == 0 }) {
		t.Error("its place is not free")
	}
	if n := generated(t) - before; n >= 4000 {
		t.Errorf("%v tokens were generated: it ran to its end", n)
	}
}

// generated is how many tokens the program has generated.
func generated(t *testing.T) (n float64) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, servers["binary"]+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	data, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "windrow_generation_tokens_total{") {
			fmt.Sscan(line[strings.LastIndex(line, " "):], &n)
			return n
		}
	}
	t.Fatalf("%s has no count of tokens", data)
	return 0
}
