// Package eval measures how well and how fast a model decodes: GSM8K accuracy
// with intervals and paired tests, tokens per forward, p_cache, sweeps over
// window × entropy threshold × penalty, and reports of them.
//
// A model is seen through [Runner], so everything here runs on scripted
// answers as well. The usual calls are [Load], [RunGSM8K], [WriteTable] and
// [WriteHTML]; [RunPCache] measures the counters alone.
package eval
