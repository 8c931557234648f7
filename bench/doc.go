// Package bench measures a model on a machine: prefill, steps of some rows, and the
// modes on prompts, and reports medians with their extremes. For a GPU that is not
// there it counts what forwards would read, write and compute.
//
// What is compared alternates within one run: a repetition measures everything
// once.
package bench
