// Package loadtest has tests only: a server under more load than it can take, under
// clients that leave, that read slowly or not at all, and that send what is no request.
// They go over real connections, with a real scheduler over a model so small that a
// forward takes no time, or the time that a test wants. With CI=true they take as long
// as docs/serving-benchmarks.md says; otherwise some seconds.
package loadtest
