package eval

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"windrow/decoder"
)

func TestWriteTable(t *testing.T) {
	c := evaluation("")
	c.Arithmetic, c.FewShot, c.Options.Sampling.Temperature = "go f32", 3, 0.7
	c.Offset, c.Limit = 2, 9
	c.Settings = append(c.Settings, Setting{Mode: decoder.WeDLM, Window: 8, EntropyThreshold: threshold(0.7)}, Setting{Mode: decoder.WeDLM})
	report, err := RunGSM8K(context.Background(), &scripted{}, c)
	if err != nil {
		t.Fatal(err)
	}
	report.Resumed = 4
	var b bytes.Buffer
	if err := WriteTable(&b, report); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", b.Bytes())

	c = evaluation("")
	c.Settings = c.Settings[:1]
	ctx, cancel := context.WithCancel(context.Background())
	report, _ = RunGSM8K(ctx, &scripted{stopAfter: 3, cancel: cancel}, c)
	b.Reset()
	if err := WriteTable(&b, report); err != nil {
		t.Fatal(err)
	}
	golden(t, "table-one.txt", b.Bytes())
	if err := WriteTable(brokenWriter{}, report); err == nil {
		t.Error("a broken writer: no error")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }
