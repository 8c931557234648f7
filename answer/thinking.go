package answer

import "strings"

// The tags around reasoning.
const (
	ThinkOpen  = "<think>"
	ThinkClose = "</think>"
)

// Thinking says where in the text reasoning may stand.
type Thinking uint8

const (
	// ThinkingOff: nowhere. Tags are content as any other text.
	ThinkingOff Thinking = iota
	// ThinkingTagged: at the beginning, between <think> and </think>.
	ThinkingTagged
	// ThinkingOpened: the prompt ends in <think>, so that the text begins
	// inside.
	ThinkingOpened
)

// ThinkingOf returns where to look for reasoning in what a model writes after
// prompt, the rendered conversation with its generation prompt. The prompt
// decides where it ends in a tag of thinking: a model that cannot be kept from
// thinking does so whatever was asked for. Elsewhere thinking is off if enabled
// (the caller's switch; nil: none) is false, and if the template, a Jinja
// source, has nothing of it.
func ThinkingOf(template, prompt string, enabled *bool) Thinking {
	prompt = strings.TrimRight(prompt, space)
	switch {
	case strings.HasSuffix(prompt, ThinkOpen):
		return ThinkingOpened
	case strings.HasSuffix(prompt, ThinkClose), enabled != nil && !*enabled:
		return ThinkingOff
	case strings.Contains(template, ThinkOpen), strings.Contains(template, ThinkClose):
		return ThinkingTagged
	}
	return ThinkingOff
}

// stepOpening looks for <think> at the very beginning, after white space.
func (p *Parser) stepOpening(b byte) bool {
	k := len(p.held) - p.blank
	switch {
	case k == 0 && isSpace(b):
		p.held = append(p.held, b)
		p.blank++
	case b == ThinkOpen[k]:
		p.held = append(p.held, b)
		if k+1 == len(ThinkOpen) {
			p.held = p.held[:0]
			p.state = inReasoning
		}
	default:
		p.endOpening()
		return false
	}
	return true
}

// endOpening: there is no tag, so what was held is text.
func (p *Parser) endOpening() {
	p.state = inContent
	if p.thinking == ThinkingOpened {
		p.state = inReasoning
	}
	held := p.held
	p.held = nil
	for _, b := range held {
		p.feed(b)
	}
}

// stepReasoning looks for </think>. Newlines beside the tags are the
// templates' layout and dropped: those at the beginning at once, later ones are
// counted until it is known what follows.
func (p *Parser) stepReasoning(b byte) bool {
	switch {
	case b == ThinkClose[p.matched]:
		p.matched++
		if p.matched == len(ThinkClose) {
			p.matched, p.state = 0, afterReasoning // newlines that are held are dropped
		}
	case p.matched > 0:
		p.endReasoning()
		return false
	case b == '\n':
		if p.reasoned {
			p.newlines++
		}
	default:
		p.reasoning(string([]byte{b}))
	}
	return true
}

// endReasoning gives out the beginning of a tag that is none.
func (p *Parser) endReasoning() {
	matched := p.matched
	p.matched = 0
	p.reasoning(ThinkClose[:matched])
}

// reasoning gives out text after the newlines that were held before it.
func (p *Parser) reasoning(s string) {
	for ; p.newlines > 0; p.newlines-- {
		p.emit(Reasoning, "\n")
	}
	if s != "" {
		p.reasoned = true
		p.emit(Reasoning, s)
	}
}
