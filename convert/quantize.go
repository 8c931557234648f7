package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"windrow/checkpoint"
)

// Progress is how far a quantisation has come, in bytes of the source.
type Progress struct {
	Tensor      string
	Done, Total int64
}

// companionFiles are the small files of a model folder that are copied as they
// are.
var companionFiles = []string{
	checkpoint.GenerationFile, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json",
}

// Quantize writes src, quantised by the policy, as a model folder dst in the
// layout of mlx-lm: what is kept is in bf16, the rest in affine groups. The
// same source and policy give the same bytes.
//
// Weights are converted a few million at a time. The folder is written as
// DST.partial and renamed; a dst that exists is an error, and what a killed
// run left is removed and begun anew. progress may be nil.
func Quantize(ctx context.Context, src *checkpoint.Checkpoint, dst string, p Policy, progress func(Progress)) (Report, error) {
	return quantize(ctx, src, &output{}, dst, p, maxShardBytes, progress)
}

func quantize(ctx context.Context, src *checkpoint.Checkpoint, o *output, dst string, p Policy, shardBytes int64, progress func(Progress)) (r Report, err error) {
	steps, err := planQuantize(src, p)
	if err != nil {
		return r, fmt.Errorf("quantize: %w", err)
	}
	defer func() {
		if err != nil {
			o.abort()
			r, err = Report{}, fmt.Errorf("quantize: %w", err)
		}
	}()
	if err := o.begin(dst); err != nil {
		return r, err
	}
	w := &quantizeWriter{output: o, steps: steps, progress: progress}
	for _, s := range steps {
		w.total += s.before()
	}
	if err := w.weights(ctx, layShards(steps, shardBytes)); err != nil {
		return r, err
	}
	if err := w.companions(src); err != nil {
		return r, err
	}
	config, err := quantizedConfig(src, quantizationEntry(steps, p))
	if err != nil {
		return r, err
	}
	if err := o.writeFile(checkpoint.ConfigFile, config); err != nil {
		return r, err
	}
	if err := ctx.Err(); err != nil {
		return r, err
	}
	if err := o.finish(); err != nil {
		return r, err
	}
	return reportQuantize(steps, p), nil
}

// quantizeWriter writes one checkpoint.
type quantizeWriter struct {
	output      *output
	steps       []*quantizeStep
	progress    func(Progress)
	done, total int64
}

// weights writes the shards, and their index where there are several.
func (w *quantizeWriter) weights(ctx context.Context, shards [][]checkpoint.RawTensor) error {
	weightMap := map[string]string{}
	total := int64(0)
	for i, tensors := range shards {
		name := checkpoint.WeightsFile
		if len(shards) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		}
		for _, t := range tensors {
			weightMap[t.Name] = name
		}
		n, err := w.shard(ctx, name, i, tensors)
		if err != nil {
			return err
		}
		total += n
	}
	if len(shards) == 1 {
		return nil
	}
	index, err := json.MarshalIndent(map[string]any{"metadata": map[string]int64{"total_size": total}, "weight_map": weightMap}, "", "    ")
	if err != nil {
		return err
	}
	return w.output.writeFile(checkpoint.IndexFile, append(index, '\n'))
}

// shard writes one file of tensors and returns the bytes of its data.
func (w *quantizeWriter) shard(ctx context.Context, name string, number int, tensors []checkpoint.RawTensor) (total int64, err error) {
	header, err := checkpoint.SafetensorsHeader(map[string]string{"format": "mlx"}, tensors)
	if err != nil {
		return 0, err
	}
	// Data starts at a multiple of 64 bytes, a cache line and a vector register.
	header = append(header, bytes.Repeat([]byte{' '}, -len(header)&63)...)
	binary.LittleEndian.PutUint64(header, uint64(len(header)-8))
	f, err := w.output.create(name)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			f.Close() // a second Close does no harm
		}
	}()
	if err := f.writeAt(header, 0); err != nil {
		return 0, err
	}
	for _, s := range w.steps {
		if s.shard != number {
			continue
		}
		write := func(part int, at int64, data []byte) error {
			return f.writeAt(data, int64(len(header))+s.at[part]+at)
		}
		rowBytes := s.before() / int64(s.out)
		done := func(rows int) {
			w.done += rowBytes * int64(rows)
			if w.progress != nil {
				w.progress(Progress{s.name, w.done, w.total})
			}
		}
		if err := s.stream(ctx, write, done); err != nil {
			return 0, err
		}
		total += s.bytes()
	}
	return total, f.finish()
}

// companions copies tokenizer and generation config.
func (w *quantizeWriter) companions(src *checkpoint.Checkpoint) error {
	for _, name := range companionFiles {
		data, err := src.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = w.output.writeFile(name, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// quantizedConfig is the source's config.json with the entry that mlx-lm reads,
// under both of its names, and keys sorted as mlx-lm does.
func quantizedConfig(src *checkpoint.Checkpoint, entry map[string]any) ([]byte, error) {
	data, err := src.ReadFile(checkpoint.ConfigFile)
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	set := func(name string, value any) {
		if text, e := json.Marshal(value); e != nil {
			err = e
		} else {
			fields[name] = text
		}
	}
	for _, name := range []string{"torch_dtype", "dtype"} {
		if fields[name] != nil {
			set(name, "bfloat16")
		}
	}
	if entry != nil {
		set("quantization", entry)
		set("quantization_config", entry)
	}
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(fields, "", "    ")
	return append(text, '\n'), err
}
