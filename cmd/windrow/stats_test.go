package main

import (
	"testing"

	"windrow/bench"
	"windrow/decoder"
	"windrow/internal/testhelp"
)

// TestReportNames pins the names that users read in the JSON of generate and
// bench: none of them may go.
func TestReportNames(t *testing.T) {
	cost, err := decoder.NewCostModel([]decoder.CostPoint{{Rows: 1, Seconds: 1}})
	if err != nil {
		t.Fatal(err)
	}
	generated := newGeneration(decoder.Options{Mode: decoder.AR, Cost: cost}, decoder.Summary{})
	for _, test := range []struct {
		value any
		names string
	}{
		{generated, "text tokens prompt_tokens finish_reason mode stats"},
		{generated.Stats, "forwards rows tokens tokens_per_forward p_cache prefill_seconds decode_seconds tokens_per_second " +
			"prefill_tokens_per_second drafts accepted masks"},
		{generated.Stats.Masks, "mean min max"},
		{bench.ModeReport{}, "data mode decode_tokens_per_second tokens_per_forward p_cache mean_rows tokens drafts accepted masks " +
			"speedup speedup_spread spread"},
		{bench.Report{}, "model dtype backend kernels exact kv_dtype threads repetitions context bandwidth_gbps prefill step_ms c one_row_ms " +
			"one_row_bytes one_row_bandwidth_share modes spread"},
		{bench.DryForward{}, "prefill sequences rows context dispatches_per_layer"},
	} {
		testhelp.JSONNames(t, test.value, test.names)
	}
	if masks := newGeneration(decoder.Options{Mode: decoder.AR}, decoder.Summary{}).Stats.Masks; masks != nil {
		t.Errorf("masks %v of a window that did not adapt", masks)
	}
}
