// Package schedule lets many generations share one model: it queues requests, admits
// as many as there is memory for, puts their rows into common forwards, keeps the
// beginnings of conversations, and hands each its events. docs/scheduling.md says what
// it promises and by which rules.
//
// One goroutine, which New starts and Close ends, owns the model meanwhile.
package schedule
