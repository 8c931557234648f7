package eval

import (
	"slices"
	"strings"
	"testing"

	"windrow/internal/testhelp"
)

// TestReportNames pins the names that users read in reports and output files: none
// of them may go.
func TestReportNames(t *testing.T) {
	for _, test := range []struct {
		value any
		names string
	}{
		{Item{}, "index question reference prediction correct text tokens forwards rows mode entropy_threshold pos_penalty drafts accepted " +
			"prompt_tokens finish_reason prefill_seconds decode_seconds tokens_hash"},
		{SettingReport{}, "name mode entropy_threshold pos_penalty n correct accuracy accuracy_low accuracy_high tokens forwards rows drafts accepted " +
			"tokens_per_forward p_cache mean_rows decode_seconds tokens_per_second truncated frontier"},
		{FormReport{}, "name bytes bits_per_weight n correct accuracy accuracy_low accuracy_high tokens forwards rows " +
			"tokens_per_forward tokens_per_second truncated"},
		{PCacheCounts{}, "category prompts tokens forwards rows tokens_per_forward p_cache mean_rows decode_seconds tokens_per_second"},
	} {
		object := testhelp.JSONNames(t, test.value, test.names)
		for name := range object {
			if strings.ToLower(name) != name || slices.Contains([]string{"masks", "least_masks", "most_masks"}, name) {
				t.Errorf("%T shows %q", test.value, name)
			}
		}
	}
}
