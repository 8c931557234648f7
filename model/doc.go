// Package model runs Qwen-style transformers over a backend. [Load] hands a
// checkpoint's weights to one; [Model.Forward] runs a [Batch], packed rows of one
// or more sequences, and returns a [Result] for each wanted row; a [Cache] holds
// one sequence's keys and values, and counts which of them are permanent.
//
// It knows no decoder, no tokenizer, and no file but through checkpoint.Source.
// [Model.Validate] compares a forward with golden tensors of another engine.
package model
