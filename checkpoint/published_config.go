package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"windrow/architecture"
)

// The methods of quantization_config that are read beside MLX's groups.
const (
	methodAWQ        = "awq"
	methodGPTQ       = "gptq"
	methodFP8        = "fp8"
	methodCompressed = "compressed-tensors"
)

// wantOther says where to turn from a form that is not read.
const wantOther = "take the model in bf16, or its GGUF or MLX form"

// Published is how the weights of a checkpoint are quantised that was made for
// the engines of GPUs.
type Published = architecture.Published

// readPublished reads the entry o, called name, of a method; nil where it is
// none of those that are read, which is an error of f.
func readPublished(f, o *fields, name, method string) *Published {
	p := &Published{Method: method}
	switch method {
	case methodAWQ:
		readAWQ(p, o)
	case methodGPTQ:
		readGPTQ(p, o)
	case methodFP8:
		readFP8(p, o)
	case methodCompressed:
		readCompressed(p, o)
	default:
		f.fail("%s.quant_method: found %.40q, want awq, gptq, fp8, compressed-tensors, or MLX's affine groups: %s", name, method, wantOther)
		return nil
	}
	if o.err != nil {
		f.fail("%s.%w", name, o.err)
		return nil
	}
	return p
}

// one refuses a text that is none of those that are read; missing is the first.
func (f *fields) one(name string, of ...string) string {
	text := f.text(name, of[0])
	if !slices.Contains(of, text) {
		f.fail("%s: found %.40q, want %s: %s", name, text, strings.Join(of, " or "), wantOther)
	}
	return text
}

// bitsOf reads a width of whole numbers.
func (f *fields) bitsOf(name string, of ...int) int {
	bits := f.integer(name, 1, 32, required)
	if f.err == nil && !slices.Contains(of, bits) {
		f.fail("%s: found %d, want %s: %s", name, bits, strings.Trim(strings.ReplaceAll(fmt.Sprint(of), " ", " or "), "[]"), wantOther)
	}
	return bits
}

// groupOf reads the length of groups, -1 for whole rows.
func (f *fields) groupOf(name string, fallback int) int {
	group := f.integer(name, -1, 1<<20, fallback)
	if f.err == nil && group != -1 && (group < 32 || group%32 != 0) {
		f.fail("%s: found %d, want a multiple of 32, or -1 for whole rows", name, group)
	}
	return group
}

// empty refuses an object or a list that holds something.
func (f *fields) empty(name, what string) {
	if !f.has(name) {
		return
	}
	switch text := excerpt(f.raw[name]); text {
	case "{}", "{ }", "[]", "[ ]", "false", `""`:
	default:
		f.fail("%s: found %s, want none: %s; %s", name, text, what, wantOther)
	}
}

func readAWQ(p *Published, o *fields) {
	p.Bits = o.bitsOf("bits", 4)
	p.Group = o.groupOf("group_size", 128)
	version := strings.ToLower(o.text("version", "gemm"))
	if version != "gemm" {
		o.fail("version: found %.40q, want gemm: %s", version, wantOther)
	}
	if !o.boolean("zero_point", true) {
		o.fail("zero_point: found false, want true: %s", wantOther)
	}
	o.texts("modules_to_not_convert")
}

func readGPTQ(p *Published, o *fields) {
	p.Bits = o.bitsOf("bits", 4, 8)
	p.Group = o.groupOf("group_size", 128)
	p.Symmetric = o.boolean("sym", true)
	p.ActOrder = o.boolean("desc_act", false)
	if o.one("checkpoint_format", "gptq", "gptq_v2") == "gptq" {
		p.ZeroPlus = 1
	}
	if o.boolean("is_marlin_format", false) {
		o.fail("is_marlin_format: found true, want false: %s", wantOther)
	}
	o.one("pack_dtype", "int32")
	o.empty("dynamic", "modules with a format of their own are not read")
}

func readFP8(p *Published, o *fields) {
	o.one("fmt", "e4m3")
	o.one("activation_scheme", "dynamic")
	o.texts("modules_to_not_convert")
	p.Group, p.Symmetric = -1, true
	if !o.has("weight_block_size") {
		o.fail("weight_block_size: missing, want the outputs and the inputs that share a scale, as [128, 128]: %s", wantOther)
		return
	}
	readBlock(p, o, "weight_block_size")
}

// readBlock reads two lengths.
func readBlock(p *Published, o *fields, name string) {
	const most = 1 << 20
	block := o.integers(name, 2)
	if o.err == nil && (len(block) != 2 || min(block[0], block[1]) < 1 || max(block[0], block[1]) > most) {
		o.mismatch(name, "two lengths from 1 to %d", most)
	}
	if o.err == nil {
		p.BlockOutputs, p.BlockInputs = block[0], block[1]
	}
}

// readCompressed takes one group of weights: whole numbers that are packed, or
// F8_E4M3.
func readCompressed(p *Published, o *fields) {
	format := o.one("format", "pack-quantized", "float-quantized")
	if !o.has("format") {
		o.fail("format: missing, want pack-quantized or float-quantized")
	}
	o.texts("ignore")
	o.empty("transform_config", "weights are rotated")
	if sparsity := o.object("sparsity_config"); sparsity != nil {
		sparsity.one("format", "dense")
		o.take("sparsity_config", sparsity)
	}
	groups := o.object("config_groups")
	if o.err == nil && (groups == nil || len(groups.raw) != 1) {
		o.mismatch("config_groups", "one group for all linear layers")
	}
	if o.err != nil {
		return
	}
	for name := range groups.raw {
		group := groups.object(name)
		if group == nil || group.object("weights") == nil {
			groups.mismatch(name, "an object with weights")
			break
		}
		group.one("format", format)
		w := group.object("weights")
		readCompressedWeights(p, w, format)
		group.take("weights", w)
		if in := group.object("input_activations"); in != nil && !in.boolean("dynamic", false) {
			group.fail("input_activations.dynamic: want true: activations with scales of their own are not read; %s", wantOther)
		}
		groups.err = group.err
	}
	o.take("config_groups", groups)
}

// take moves the error of a nested object to f.
func (f *fields) take(name string, nested *fields) {
	if nested.err != nil {
		f.fail("%s.%w", name, nested.err)
	}
}

func readCompressedWeights(p *Published, w *fields, format string) {
	p.Symmetric = w.boolean("symmetric", true)
	if w.boolean("dynamic", false) {
		w.fail("dynamic: found true, want false")
	}
	strategy := w.text("strategy", "")
	if format == "float-quantized" {
		w.one("type", "float")
		w.bitsOf("num_bits", 8)
		if !p.Symmetric {
			w.fail("symmetric: found false, want true: %s", wantOther)
		}
		p.Group = -1
		switch strategy {
		case "tensor":
			p.BlockOutputs, p.BlockInputs = -1, -1
		case "channel":
			p.BlockOutputs, p.BlockInputs = 1, -1
		case "block":
			readBlock(p, w, "block_structure")
		default:
			w.fail("strategy: found %.40q, want tensor, channel or block: %s", strategy, wantOther)
		}
		return
	}
	w.one("type", "int")
	p.Bits = w.bitsOf("num_bits", 4, 8)
	p.Group = -1
	switch strategy {
	case "group":
		p.Group = w.groupOf("group_size", required)
	case "channel":
	default:
		w.fail("strategy: found %.40q, want group or channel: %s", strategy, wantOther)
	}
	// "static" and "weight" leave the groups in order.
	order := w.text("actorder", "")
	p.ActOrder = order == "group" || order == "dynamic"
}
