// Package answer turns the text that a chat model generates into what it
// means: reasoning, content, tool calls, and why it ended.
//
// A [Parser] takes the text in any cut, be it bytes, tokens or several tokens
// at once, and returns events as soon as they are certain. Joined, the events
// do not depend on how the text was cut. [Parse] does the same to a whole text.
//
// What is recognised:
//
//   - reasoning between <think> and </think> ([Thinking]),
//   - tool calls in one of two forms ([Form]): Qwen's JSON in <tool_call>, and
//     the tagged form of the coder models, whose arguments become JSON by the
//     tools' schemas,
//   - stop strings, in content only.
//
// Everything else is content, what looks like a call and is none, too: no text
// is an error. docs/answers.md has the rules.
//
// [Form.Syntax] gives each form's literal text, for grammars that force a call;
// [ToolCalls] prepares the calls of earlier messages for a chat template.
//
// The package has no model, no tokenizer and no wire format in it. A Parser may
// be used by one goroutine at a time.
package answer
