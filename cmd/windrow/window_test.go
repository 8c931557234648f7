package main

import (
	"testing"

	"windrow/decoder"
)

func TestWindowChoice(t *testing.T) {
	for _, test := range []struct {
		w           windowChoice
		mode        decoder.Mode
		temperature float32
		want        bool
	}{
		{windowChoice{}, decoder.Verified, 0, true},
		{windowChoice{}, decoder.Verified, 1, true},
		{windowChoice{given: true, auto: true}, decoder.Verified, 1, true},
		{windowChoice{}, decoder.WeDLM, 0, false},
		{windowChoice{}, decoder.AR, 0, false},
		{windowChoice{given: true, auto: true}, decoder.WeDLM, 0, true},
		{windowChoice{given: true, auto: true}, decoder.AR, 0, false},
		{windowChoice{given: true}, decoder.Verified, 0, false},
	} {
		o := decoder.Options{Mode: test.mode, Sampling: decoder.Sampling{Temperature: test.temperature}}
		if got := test.w.adaptive(o); got != test.want {
			t.Errorf("%+v in %s at temperature %v: adaptive %t", test.w, test.mode, test.temperature, got)
		}
	}
}
