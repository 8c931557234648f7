// Package server answers HTTP requests with a model, in the wire formats of OpenAI's
// APIs and of Anthropic's: conversations, responses, messages and completions, streamed
// or whole, and beside them what a server is asked for about itself. docs/server.md is
// for those who run one, docs/api.md has the endpoints.
//
// Each API reads its requests into one form (chatRequest), which is rendered and run the
// same way (run); what comes of it (update) each tells by a writer of its own.
//
// It has no model in it: a [Model] says what one can do, and its Scheduler runs the
// requests. [ForEngine] makes one of an open engine.
//
// A request's fields are obeyed or refused with an error that names them; those that
// mean nothing here are named in the reply's header Windrow-Ignored.
//
// It prints nothing; it writes one line a request to the logger that [Options] name,
// without what was asked or answered.
package server
