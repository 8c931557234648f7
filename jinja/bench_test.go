package jinja

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// BenchmarkConversation compiles and renders a template of Qwen3's kind for 20
// messages with 2 tools.
func BenchmarkConversation(b *testing.B) {
	source, err := os.ReadFile("testdata/templates/thinking.jinja")
	if err != nil {
		b.Fatal(err)
	}
	var messages []any
	for i := range 20 {
		m := &Dict{}
		m.Set("role", []string{"user", "assistant"}[i%2])
		m.Set("content", fmt.Sprintf("<think>\nabout %d\n</think>\n\nA sentence of some ten words, as it is in a conversation, %d.", i, i))
		messages = append(messages, m)
	}
	tools, err := FromJSON([]byte(`[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "number"}}}}}, {"name": "g"}]`), nil)
	if err != nil {
		b.Fatal(err)
	}
	variables := map[string]any{"messages": messages, "tools": tools, "add_generation_prompt": true}
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			if _, err := Compile(string(source)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("render", func(b *testing.B) {
		template, err := Compile(string(source))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := template.Render(context.Background(), variables, Limits{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
