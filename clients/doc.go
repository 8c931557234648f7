// Package clients has tests alone: clients of the OpenAI and Anthropic APIs, as they are published,
// run against the built program. It is a module of its own, so that nothing of them reaches the
// program's. docs/clients.md says what is checked, and how.
package clients
