// Package convert writes a checkpoint anew with quantised weights: a policy says
// which, and the result is a model folder in the layout of mlx-lm, written
// beside its place and renamed.
package convert
