package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"windrow/backend"
	"windrow/quant"
)

// The tensors of a quantised module, by method. The first is the one that holds
// the numbers.
var publishedParts = map[string][]string{
	methodAWQ:        {".qweight", ".qzeros", ".scales"},
	methodGPTQ:       {".qweight", ".qzeros", ".scales", ".g_idx"},
	methodFP8:        {".weight", ".weight_scale_inv"},
	methodCompressed: {".weight_packed", ".weight_scale", ".weight_shape", ".weight_zero_point", ".weight_g_idx"},
}

const float8Name = "F8_E4M3"

// maxPublishedSize bounds outputs and inputs, so that no product of two that a
// tensor's bytes stand for overflows.
const maxPublishedSize = 1 << 24

// partsOf lists the endings of a quantised module's tensors.
func partsOf(p *Published) []string {
	if p.Method == methodCompressed && p.Bits == 0 {
		return []string{".weight", ".weight_scale"}
	}
	return publishedParts[p.Method]
}

// takePart keeps a tensor that is a part of a quantised weight, and names the
// weight where it holds the numbers; false for any other tensor.
func (c *Checkpoint) takePart(raw RawTensor, file string) bool {
	p := c.config.Published
	if p == nil {
		return false
	}
	for i, suffix := range partsOf(p) {
		module, ok := strings.CutSuffix(raw.Name, suffix)
		if !ok || suffix == ".weight" && raw.DType != float8Name {
			continue
		}
		c.parts[raw.Name] = packedTensor{raw, file}
		if i == 0 {
			c.names = append(c.names, module+".weight")
		}
		return true
	}
	return false
}

// joinPublished makes each quantised weight one tensor of its parts, which may
// lie in several shards. Nothing is read but shapes and the order of groups;
// the tensor's Make converts.
func (c *Checkpoint) joinPublished() error {
	p := c.config.Published
	if p == nil {
		for _, name := range slices.Sorted(maps.Keys(c.others)) {
			if strings.HasSuffix(name, ".qweight") || strings.HasSuffix(name, ".weight_packed") {
				return fmt.Errorf("tensor %.80q holds packed numbers, and %s has no quantization_config that says how: want that entry", name, c.files.path(ConfigFile))
			}
		}
		return nil
	}
	suffixes := partsOf(p)
	used := map[string]bool{}
	for _, name := range c.names {
		module := strings.TrimSuffix(name, ".weight")
		main, ok := c.parts[module+suffixes[0]]
		if !ok {
			continue
		}
		if _, ok := c.tensors[name]; ok {
			return fmt.Errorf("%s: tensor %.80q and %.80q: want one of them", c.files.path(main.file), main.Name, name)
		}
		t, err := c.publishedTensor(p, module, main.RawTensor)
		if err != nil {
			return fmt.Errorf("%s: %w", c.files.path(main.file), err)
		}
		c.tensors[name] = t
		for _, suffix := range suffixes {
			used[module+suffix] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.parts)) {
		c.stored = append(c.stored, c.parts[name].RawTensor)
		if !used[name] {
			return fmt.Errorf("%s: tensor %.80q belongs to a quantised weight, and its %s is missing", c.files.path(c.parts[name].file), name, suffixes[0])
		}
	}
	c.parts = nil
	return nil
}

// publishedTensor describes the weight of a module, with the function that makes
// it.
func (c *Checkpoint) publishedTensor(p *Published, module string, main RawTensor) (backend.Tensor, error) {
	if len(main.Shape) != 2 || slices.Min(main.Shape) < 1 || slices.Max(main.Shape) > maxPublishedSize {
		return backend.Tensor{}, fmt.Errorf("tensor %.80q: shape %v, want two dimensions from 1 to %d", main.Name, main.Shape, maxPublishedSize)
	}
	j := joiner{c: c, p: p, module: module, main: main}
	if p.Bits == 0 {
		return j.float8()
	}
	return j.grouped()
}

// joiner puts the parts of one module together and keeps the first error.
type joiner struct {
	c      *Checkpoint
	p      *Published
	module string
	main   RawTensor
	err    error
}

func (j *joiner) fail(format string, args ...any) {
	if j.err == nil {
		j.err = fmt.Errorf(format, args...)
	}
}

// part finds a part of one of some dtypes.
func (j *joiner) part(suffix string, dtypes ...string) (RawTensor, bool) {
	t, ok := j.c.parts[j.module+suffix]
	if ok && !slices.Contains(dtypes, t.DType) {
		j.fail("tensor %.80q: found %s, want %s", t.Name, t.DType, strings.Join(dtypes, " or "))
		return t.RawTensor, false
	}
	return t.RawTensor, ok
}

// needed is part with a shape, for one that has to be there.
func (j *joiner) needed(suffix string, shape []int, dtypes ...string) RawTensor {
	t, ok := j.part(suffix, dtypes...)
	switch {
	case j.err != nil:
	case !ok:
		j.fail("tensor %.80q is quantised, and %.80q is missing", j.main.Name, j.module+suffix)
	case !slices.Equal(t.Shape, shape):
		j.fail("tensor %.80q: shape %v, want %v for %.80q of shape %v, %v", t.Name, t.Shape, shape, j.main.Name, j.main.Shape, j.p)
	}
	return t
}

// grouped joins whole numbers in groups.
func (j *joiner) grouped() (backend.Tensor, error) {
	if j.main.DType != "I32" {
		return backend.Tensor{}, fmt.Errorf("tensor %.80q: found %s, want I32", j.main.Name, j.main.DType)
	}
	p, n := j.p, 32/j.p.Bits
	g := &quant.Grouped{Bits: p.Bits, Group: p.Group, Numbers: j.main.Data, ZeroPlus: p.ZeroPlus, Symmetric: p.Symmetric}
	scales, zeros := ".scales", ".qzeros"
	switch p.Method {
	case methodAWQ:
		g.Layout, g.In, g.Out = quant.LayoutAWQ, j.main.Shape[0], j.main.Shape[1]*n
	case methodGPTQ:
		g.Layout, g.In, g.Out = quant.LayoutGPTQ, j.main.Shape[0]*n, j.main.Shape[1]
	default:
		g.Layout, g.Out, g.In = quant.LayoutRows, j.main.Shape[0], j.main.Shape[1]*n
		scales, zeros = ".weight_scale", ".weight_zero_point"
		j.logicalShape(g.Out, g.In)
	}
	if g.Group < 0 {
		g.Group = g.In
	}
	if g.In%g.Group != 0 || g.Group%32 != 0 {
		j.fail("tensor %.80q: %d inputs in groups of %d: want whole groups of a multiple of 32", j.main.Name, g.In, g.Group)
	}
	if g.Out%quant.GroupedUnit != 0 {
		j.fail("tensor %.80q: %d outputs, want a multiple of %d", j.main.Name, g.Out, quant.GroupedUnit)
	}
	if j.err != nil {
		return backend.Tensor{}, j.err
	}
	groups := g.In / g.Group
	scaleShape, zeroShape := []int{groups, g.Out}, []int{groups, g.Out / n}
	if g.Layout == quant.LayoutRows {
		scaleShape, zeroShape = []int{g.Out, groups}, []int{g.Out / n, groups}
	}
	s := j.needed(scales, scaleShape, "F16", "BF16")
	g.Scales, g.ScalesBF16 = s.Data, s.DType == "BF16"
	if g.Layout != quant.LayoutRows || !g.Symmetric {
		g.Zeros = j.needed(zeros, zeroShape, "I32").Data
	}
	j.inOrder(g)
	if j.err != nil {
		return backend.Tensor{}, j.err
	}
	dt, group, err := g.Target()
	if err != nil {
		return backend.Tensor{}, fmt.Errorf("tensor %.80q: %w are not read: %s", j.main.Name, err, wantOther)
	}
	t := backend.Tensor{Name: j.module + ".weight", DType: dt, Shape: []int{g.Out, g.In}, Group: group}
	t.Make = makeGrouped(t, g, j.main.Name)
	return t, nil
}

// logicalShape checks compressed-tensors' weight_shape against the words.
func (j *joiner) logicalShape(out, in int) {
	t := j.needed(".weight_shape", []int{2}, "I64", "I32")
	if j.err != nil {
		return
	}
	shape, err := t.Int32s()
	if err != nil {
		j.fail("%w", err)
	} else if int(shape[0]) != out || int(shape[1]) != in {
		j.fail("tensor %.80q: shape %v, want that of %d × %d words of %d bits, [%d %d]", t.Name, shape, out, j.main.Shape[1], j.p.Bits, out, in)
	}
}

// inOrder refuses groups whose inputs do not lie one after the other.
func (j *joiner) inOrder(g *quant.Grouped) {
	suffix := ".g_idx"
	if g.Layout == quant.LayoutRows {
		suffix = ".weight_g_idx"
	}
	if _, ok := j.c.parts[j.module+suffix]; !ok {
		if j.p.ActOrder {
			j.fail("tensor %.80q: desc_act is set, and %.80q is missing", j.main.Name, j.module+suffix)
		}
		return
	}
	t := j.needed(suffix, []int{g.In}, "I32", "I64")
	if j.err != nil {
		return
	}
	index, err := t.Int32s()
	if err != nil {
		j.fail("%w", err)
		return
	}
	for i, got := range index {
		if want := i / g.Group; int(got) != want {
			j.fail("tensor %.80q: input %d is in group %d, want %d: inputs in act-order (desc_act) are not read: %s", t.Name, i, got, want, wantOther)
			return
		}
	}
}

// float8 joins floats of 8 bits with the scales of their blocks.
func (j *joiner) float8() (backend.Tensor, error) {
	out, in := j.main.Shape[0], j.main.Shape[1]
	suffix := partsOf(j.p)[1]
	b := &float8Blocks{out: out, in: in, outputs: j.p.BlockOutputs, inputs: j.p.BlockInputs}
	if b.outputs < 0 || b.outputs > out {
		b.outputs = out
	}
	if b.inputs < 0 || b.inputs > in {
		b.inputs = in
	}
	shape := []int{(out + b.outputs - 1) / b.outputs, (in + b.inputs - 1) / b.inputs}
	if t, ok := j.c.parts[j.module+suffix]; ok && j.p.Method == methodCompressed {
		// Scales of whole rows and of all of a weight are written without the
		// dimensions that are 1, too.
		switch {
		case shape[0]*shape[1] == 1 && len(t.Shape) == 0:
			shape = nil
		case shape[1] == 1 && len(t.Shape) == 1:
			shape = shape[:1]
		}
	}
	scales := j.needed(suffix, shape, "F32", "BF16", "F16")
	if j.err != nil {
		return backend.Tensor{}, j.err
	}
	w, err := scales.Weight()
	if err != nil {
		return backend.Tensor{}, err
	}
	w.Shape = []int{1, w.Elements()}
	b.scales = w
	t := backend.Tensor{Name: j.module + ".weight", DType: backend.F8_E4M3, Shape: []int{out, in}, Group: b.inputs}
	t.Make = b.make(t, j.main.Data)
	return t, nil
}
