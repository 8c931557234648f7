// Package jinja runs the chat templates of published models: programs in the
// Jinja2 language, written by strangers, on the way between a conversation and
// the prompt that a model was trained on.
//
// A template renders as it does in Python under Jinja2's
// ImmutableSandboxedEnvironment with the settings of Hugging Face's
// apply_chat_template: trim_blocks, lstrip_blocks, break and continue, the
// generation tag, a tojson that is json.dumps, raise_exception and
// strftime_now. Values have Python's semantics: integers of any (bounded)
// size, strings counted in code points, dictionaries in order of insertion,
// and Python's repr where a list is printed.
//
// One budget ([Limits]) bounds a rendering. Every step and every allocation is
// charged to it before it happens, inside of filters and methods too, so a
// hostile template ends in one line of error, early and in little memory.
// Nothing is read from outside: include, import and extends are refused.
package jinja
