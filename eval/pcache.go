package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"windrow/decoder"
)

// PCachePrompt is a prompt of one kind: how many tokens a forward yields
// depends above all on how sure the model is, and so on the kind of text.
type PCachePrompt struct {
	Category string `json:"category"`
	Prompt   string `json:"prompt"`
}

// LoadPrompts returns a prompt set: "mixed" (counting, arithmetic, word
// problem and open question, four each), or the path of a .jsonl file with the
// fields "prompt" (or "question") and, if wanted, "category".
func LoadPrompts(name string) ([]PCachePrompt, error) {
	if name == "mixed" {
		f, err := embedded.Open("data/pcache_prompts.jsonl")
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return ReadPrompts(f)
	}
	if !strings.HasSuffix(name, ".jsonl") {
		return nil, fmt.Errorf("prompts %q: want mixed or the path of a .jsonl file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("prompts: %w", err)
	}
	defer f.Close()
	prompts, err := ReadPrompts(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return prompts, nil
}

// ReadPrompts parses JSON lines as described at LoadPrompts.
func ReadPrompts(r io.Reader) ([]PCachePrompt, error) {
	var prompts []PCachePrompt
	lines := newLineReader(r)
	for {
		line, _, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if lines.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var raw struct {
			Category string `json:"category"`
			Prompt   string `json:"prompt"`
			Question string `json:"question"`
		}
		if err := json.Unmarshal(line, &raw); err != nil {
			return nil, fmt.Errorf("line %d: %w", lines.number, jsonError(err))
		}
		if raw.Prompt == "" {
			raw.Prompt = raw.Question
		}
		if strings.TrimSpace(raw.Prompt) == "" {
			return nil, fmt.Errorf(`line %d: field "prompt": missing or empty`, lines.number)
		}
		if raw.Category == "" {
			raw.Category = "prompts"
		}
		prompts = append(prompts, PCachePrompt{raw.Category, raw.Prompt})
	}
	if len(prompts) == 0 {
		return nil, errors.New(`no prompts: want lines with "prompt"`)
	}
	return prompts, nil
}

// PCache says what to measure.
type PCache struct {
	Name     string // of the prompt set, for the report
	Prompts  []PCachePrompt
	Settings []Setting
	// Options hold for all settings, but for what a Setting replaces.
	Options decoder.Options
	System  string
	// Raw gives the prompts to the model as they are, without its template.
	Raw               bool
	Model, Arithmetic string
	Progress          Progress
}

// PCacheReport is the outcome of RunPCache.
type PCacheReport struct {
	Model       string  `json:"model"`
	Arithmetic  string  `json:"arithmetic,omitempty"`
	Data        string  `json:"data"`
	Prompts     int     `json:"prompts"`
	MaxTokens   int     `json:"max_tokens"`
	Temperature float32 `json:"temperature"`
	// Complete is false for a run that was interrupted.
	Complete bool            `json:"complete"`
	Settings []PCacheSetting `json:"settings"`
}

// PCacheSetting holds one setting's counters, by category and over all.
type PCacheSetting struct {
	Name string `json:"name"`
	Setting
	Categories []PCacheCounts `json:"categories"`
	All        PCacheCounts   `json:"all"`
}

// PCacheCounts sums up generations.
type PCacheCounts struct {
	Category string `json:"category"`
	Prompts  int    `json:"prompts"`
	Counts
}

// add counts a generation.
func (c *PCacheCounts) add(s decoder.Stats) {
	c.Prompts++
	c.Counts.add(s)
}

// RunPCache generates from every prompt in every setting, prompt by prompt.
// If ctx is cancelled or a generation fails, it returns the counts of the
// prompts that all settings have finished, together with the error.
func RunPCache(ctx context.Context, r Runner, c PCache) (*PCacheReport, error) {
	settings, err := checkSettings(c.Settings)
	if err != nil {
		return nil, err
	}
	if len(c.Prompts) == 0 {
		return nil, errors.New("no prompts to measure on")
	}
	options := c.Options
	if options.MaxTokens == 0 {
		options.MaxTokens = DefaultMaxTokens
	}
	report := &PCacheReport{
		Model: c.Model, Arithmetic: c.Arithmetic, Data: c.Name, Prompts: len(c.Prompts),
		MaxTokens: options.MaxTokens, Temperature: options.Sampling.Temperature,
	}
	for _, s := range settings {
		report.Settings = append(report.Settings, PCacheSetting{Name: s.Name(), Setting: s, All: PCacheCounts{Category: "all"}})
	}
	done, total := 0, len(c.Prompts)*len(settings)
	if c.Progress != nil {
		c.Progress(0, total, "")
	}
	for _, p := range c.Prompts {
		stats := make([]decoder.Stats, len(settings))
		for i, s := range settings {
			sum, err := ask(ctx, r, c.prompt(p), s.Options(options))
			if err != nil {
				return report, fmt.Errorf("prompt %.40q (%s): %w", p.Prompt, s.Name(), err)
			}
			stats[i] = sum.Stats
			done++
			if c.Progress != nil {
				c.Progress(done, total, p.Category+", "+s.Name())
			}
		}
		for i, s := range stats {
			report.Settings[i].add(p.Category, s)
		}
	}
	report.Complete = true
	return report, nil
}

func (s *PCacheSetting) add(category string, stats decoder.Stats) {
	i := slices.IndexFunc(s.Categories, func(c PCacheCounts) bool { return c.Category == category })
	if i < 0 {
		i = len(s.Categories)
		s.Categories = append(s.Categories, PCacheCounts{Category: category})
	}
	s.Categories[i].add(stats)
	s.All.add(stats)
}

func (c PCache) prompt(p PCachePrompt) Prompt {
	if c.Raw {
		return Prompt{Raw: p.Prompt}
	}
	var m []Message
	if c.System != "" {
		m = append(m, Message{Role: "system", Content: c.System})
	}
	return Prompt{Messages: append(m, Message{Role: "user", Content: p.Prompt})}
}

func (r *PCacheReport) heading() string {
	return (&Report{
		Model: r.Model, Arithmetic: r.Arithmetic, Data: r.Data, Selected: r.Prompts, DataProblems: r.Prompts,
		MaxTokens: r.MaxTokens, Temperature: r.Temperature,
	}).heading()
}

func (r *PCacheReport) notes() []string {
	if !r.Complete {
		return []string{"Interrupted: only the prompts that every setting has finished count."}
	}
	var notes []string
	for _, s := range r.Settings {
		notes = append(notes, draftNotes(s.Name, s.Setting, s.All.Stats)...)
	}
	return notes
}
