// Package synthetic invents weights in published shapes, random or empty, for
// benchmarks and tests.
package synthetic
