package main

import (
	"strings"
	"testing"

	"windrow/backend"
	checks "windrow/backend/doctor"
	"windrow/engine"
)

// The doctor's steps of whole models, on the CPU and of a small one.
func TestExamineStep(t *testing.T) {
	machine := engine.Options{Backend: engine.CPU, KV: backend.KVBF16, Threads: 1}
	check := examineStep(t.Context(), "steps", "tiny-gsm", backend.BF16, machine)
	if check.Status != checks.StatusOK || check.Rate <= 0 || check.Millis <= 0 {
		t.Errorf("%+v", check)
	}
	for _, words := range []string{"1 rows ", "16 rows ", "32 rows ", "prefill of 512 "} {
		if !strings.Contains(check.Detail, words) {
			t.Errorf("%q does not say %q", check.Detail, words)
		}
	}
	if check = examineStep(t.Context(), "steps", "gpt-5", backend.BF16, machine); check.Status != checks.StatusFailed {
		t.Errorf("%+v", check)
	}
}
