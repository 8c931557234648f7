package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/engine"
	"windrow/internal/units"
	"windrow/model"
)

func inspectCommand() *cli.Command {
	return command(&cli.Command{
		Name:        "inspect",
		Usage:       "show a model's architecture, tensors, and what it needs to run",
		ArgsUsage:   "[MODEL]",
		Description: "Reads config and tensor headers of MODEL, a folder or a .gguf file (default: the embedded tiny-gsm); no weights are read.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "model", Aliases: []string{"m"}, Category: categoryModel, Usage: "the same as the argument, `PATH`"},
			&cli.BoolFlag{Name: "tensors", Category: categoryOutput, Usage: "list every tensor"},
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"},
		},
		Action: inspect,
	}, "windrow inspect ./WeDLM-8B-Instruct")
}

// inspection is the object that inspect --json prints.
type inspection struct {
	Model string `json:"model"`
	checkpoint.Inspection
	Kernels string `json:"kernels"`
	// QuantizedKernels says, for each type of quantised tensor, what computes
	// with it; they are kept in their blocks.
	QuantizedKernels []string `json:"quantized_kernels,omitempty"`
	Exact            bool     `json:"exact"`
	// HostExperts is where the weights lie with --cpu-moe, of a mixture.
	HostExperts *model.HostExperts `json:"host_experts,omitempty"`
	// Shares are what each of 2, 4 and 8 GPUs has, of as many as can share the model.
	Shares     []model.Share `json:"shares,omitempty"`
	TensorList []tensorInfo  `json:"tensor_list,omitempty"`
}

type tensorInfo struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Group int    `json:"group,omitempty"` // of types with scales of their own
	Shape []int  `json:"shape"`
	// Bytes are with scales and biases.
	Bytes         int     `json:"bytes"`
	BitsPerWeight float64 `json:"bits_per_weight"`
}

// quantizedPath says what the backend would do with quantised weights like t.
func quantizedPath(b *cpu.Backend, t backend.Tensor) (string, error) {
	kernels, rounds, err := b.Arithmetic(t)
	if err != nil {
		return "", err
	}
	path := "widened to f32 for " + kernels
	if rounds {
		path = "activations in int8 by " + kernels + " (--exact: widened to f32)"
	}
	return fmt.Sprintf("%s: %s", format(t.DType.String(), t.Group), path), nil
}

// format is a type with the group of affine ones.
func format(dtype string, group int) string {
	if group != 0 {
		return fmt.Sprintf("%s g%d", dtype, group)
	}
	return dtype
}

func inspect(c *cli.Context) error {
	folder := c.String("model")
	switch {
	case c.NArg() > 1, c.NArg() == 1 && folder != "":
		return usagef("%d models, want one", c.NArg()+min(1, len(folder)))
	case c.NArg() == 1:
		if folder = c.Args().First(); folder == "" {
			return usagef("the model's name is empty")
		}
	}
	source, err := engine.OpenCheckpoint(c.Context, folder)
	if err != nil {
		return err
	}
	defer source.Close()
	in, err := newInspection(source, engine.ModelName(folder), c.Bool("tensors"))
	if err != nil {
		return err
	}
	write := in.table
	if c.Bool("json") {
		write = func(w io.Writer) error { return writeJSON(w, in) }
	}
	if err := write(c.App.Writer); err != nil {
		return err
	}
	if err := model.Check(source); err != nil {
		return fmt.Errorf("generate will refuse %s: %w", in.Model, err)
	}
	return nil
}

// newInspection looks at a checkpoint, and lists its tensors if that is wanted.
func newInspection(from *checkpoint.Checkpoint, name string, tensors bool) (inspection, error) {
	b, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		return inspection{}, err
	}
	defer b.Close()
	f := b.Features()
	in := inspection{Model: name, Inspection: checkpoint.Inspect(from), Kernels: f.Kernels, Exact: f.Exact}
	for _, n := range from.Names() {
		t, _ := from.Tensor(n)
		if t.DType.Quantized() {
			path, err := quantizedPath(b, t)
			if err != nil {
				return in, err
			}
			if !slices.Contains(in.QuantizedKernels, path) {
				in.QuantizedKernels = append(in.QuantizedKernels, path)
			}
		}
		if tensors {
			in.TensorList = append(in.TensorList, tensorInfo{n, t.DType.String(), t.Group, t.Shape, t.Bytes(), t.BitsPerWeight()})
		}
	}
	if c := from.Config(); c.Experts != nil {
		x := model.HostExpertsOf(from, c.Layers, false)
		in.HostExperts = &x
	}
	for _, n := range []int{2, 4, 8} {
		if model.CheckDevices(from, n) == nil {
			in.Shares = append(in.Shares, model.ShareOf(from, n))
		}
	}
	return in, nil
}

func (in inspection) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	row("model", "%s", in.Model)
	mlp := ""
	if in.IntermediateSize > 0 { // a mixture may have no layer without experts
		mlp = fmt.Sprintf(", MLP %d", in.IntermediateSize)
	}
	row("architecture", "%s: %d layers, hidden %d%s, vocabulary %d", in.Architecture, in.Layers, in.HiddenSize, mlp, in.VocabSize)
	if e := in.Experts; e != nil {
		shared := ""
		if e.SharedIntermediateSize > 0 {
			shared = fmt.Sprintf(", one of %d for all", e.SharedIntermediateSize)
		}
		row("experts", "%d of %d for each token, MLP %d each%s; a token reads %s of weights", e.PerToken, e.Count, e.IntermediateSize, shared, units.Bytes(e.ReadBytes))
	}
	if d := in.Delta; d != nil {
		row("DeltaNet", "in %d layers: %d key heads of %d, %d value heads of %d; a sequence keeps %s, a log of %d rows with it", d.Layers, d.KeyHeads, d.KeyDim, d.ValueHeads, d.ValueDim, units.Bytes(d.StateBytes), d.LogRows)
	}
	var with []string
	for _, f := range []struct {
		has  bool
		name string
	}{{in.QKNorm, "q/k norm"}, {in.QKVBias, "bias on q, k, v"}, {in.TieEmbeddings, "head tied to the embedding"}, {!in.TieEmbeddings, "a head of its own"}, {in.Drafts, "a head for drafts"}} {
		if f.has {
			with = append(with, f.name)
		}
	}
	row("attention", "%d heads of %d over %d KV heads; %s", in.Heads, in.HeadDim, in.KVHeads, strings.Join(with, ", "))
	if d := in.DraftHead; d != nil {
		row("drafts", "--draft mtp: a head for them, %s of weights, %s of keys and values a token in bf16 beside those below", units.Bytes(d.Bytes), units.Bytes(d.KVBytesPerToken))
	}
	factor := ""
	if in.RopeFactor != 0 && in.RopeFactor != 1 {
		factor = fmt.Sprintf(", factor %g", in.RopeFactor)
	}
	if in.RotatedDim != 0 {
		factor += fmt.Sprintf(", over %d of %d", in.RotatedDim, in.HeadDim)
	}
	row("context", "%d tokens; RoPE %s, θ %g%s", in.MaxPositions, in.RopeType, in.RopeTheta, factor)
	mask := "none: --mode ar, or --mask-id"
	if in.MaskTokenID >= 0 {
		mask = fmt.Sprint(in.MaskTokenID)
	}
	end := "none"
	if len(in.EOSTokenIDs) > 0 {
		end = strings.Trim(fmt.Sprint(in.EOSTokenIDs), "[]")
	}
	row("token ids", "mask %s, end %s", mask, end)
	if in.Quantization != "" {
		row("published as", "%s; below is what it becomes in memory", in.Quantization)
	}
	row("tensors", "%d, %s parameters, %s, %.3f bits a weight", in.Tensors, millions(in.Parameters), units.Bytes(in.Bytes), in.BitsPerWeight)
	for _, d := range in.DTypes {
		row("", "%s: %d tensors, %s parameters, %s, %.3f bits a weight", d.DType, d.Tensors, millions(d.Parameters), units.Bytes(d.Bytes),
			8*float64(d.Bytes)/float64(max(1, d.Parameters)))
	}
	for _, kv := range in.KV {
		row("KV "+kv.DType, "%s a token", units.Bytes(kv.BytesPerToken))
	}
	for _, m := range in.Memory {
		row(fmt.Sprintf("context %d, KV %s", m.Context, m.KVDType), "%s of keys and values, %s with the weights", units.Bytes(m.KV), units.Bytes(m.Total))
	}
	if h := in.HostExperts; h != nil {
		row("with --cpu-moe", "%s on the GPU, of which a token reads %s; experts of %s in host memory (%s a layer), of which it reads %s",
			units.Bytes(h.DeviceBytes), units.Bytes(h.DeviceReadBytes), units.Bytes(h.HostBytes), units.Bytes(h.HostBytes/int64(max(1, h.ExpertLayers))), units.Bytes(h.HostReadBytes))
	}
	for _, s := range in.Shares {
		states := ""
		if s.StateBytes > 0 {
			states = fmt.Sprintf(", %s of a sequence's states", units.Bytes(s.StateBytes))
		}
		row(fmt.Sprintf("each of %d GPUs", s.GPUs), "%s of weights, of which a token reads %s%s, KV bf16 %s a token", units.Bytes(s.WeightBytes), units.Bytes(s.ReadBytes), states, units.Bytes(s.KVBytesPerToken))
	}
	rounded := "activations are rounded to the weights' precision (--exact: f32)"
	if in.Exact {
		rounded = "activations stay in f32"
	}
	row("runs here in", "%s; %s", in.Kernels, rounded)
	for i, path := range in.QuantizedKernels {
		name := "quantised"
		if i > 0 {
			name = ""
		}
		row(name, "%s", path)
	}
	for _, t := range in.TensorList {
		row(t.Name, "%s %v %s, %.3f bits a weight", format(t.DType, t.Group), t.Shape, units.Bytes(int64(t.Bytes)), t.BitsPerWeight)
	}
	return w.Flush()
}

func millions(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.2f billion", float64(n)/1e9)
	}
	return fmt.Sprintf("%.1f million", float64(n)/1e6)
}
