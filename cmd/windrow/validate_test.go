package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"windrow/model"
)

// TestValidationTable: entries that nothing was computed for are named, some of many.
func TestValidationTable(t *testing.T) {
	show := func(names ...string) string {
		var b bytes.Buffer
		r := validationReport{NotCompared: names, Entries: []validationEntry{{model.Deviation{Entry: "prompt.logits", Rows: 3, ArgmaxEqual: 3}, true}}}
		if err := r.table(cli.NewContext(&cli.App{Writer: &b}, nil, nil)); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := show(); strings.Contains(got, "compared") || !strings.Contains(got, "3/3") {
		t.Errorf("all compared: %s", got)
	}
	if got := show("mtp.logits", "x"); !strings.HasSuffix(got, "\nnot compared: mtp.logits, x\n") {
		t.Errorf("two: %s", got)
	}
	if got := show(strings.Split("abcdefghij", "")...); !strings.HasSuffix(got, "\nnot compared: a, b, c, d, e, f, g, h and 2 more\n") {
		t.Errorf("ten: %s", got)
	}
}
