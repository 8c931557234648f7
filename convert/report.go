package convert

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Report says what a quantisation kept and what it saved.
type Report struct {
	Policy Policy `json:"policy"`
	// Classes are the kinds of tensors, in the order of the source: down_proj,
	// experts.down_proj, embed_tokens, norms and biases.
	Classes []QuantizedClass `json:"classes"`
	// Kept are the matrices that stay in bf16, and what the architecture does not
	// know.
	Kept []KeptTensor `json:"kept"`

	Parameters  int64 `json:"parameters"`
	BytesBefore int64 `json:"bytes_before"`
	BytesAfter  int64 `json:"bytes_after"`
	// The bits of a weight, scales and biases included: of the whole model
	// before and after, and of the packed tensors alone (0: none is).
	BitsBefore    float64 `json:"bits_per_weight_before"`
	BitsAfter     float64 `json:"bits_per_weight_after"`
	BitsQuantized float64 `json:"bits_per_quantized_weight"`
}

// QuantizedClass is a kind of tensors in one format.
type QuantizedClass struct {
	Class         string  `json:"class"`
	Format        string  `json:"format"` // "bf16", "affine4 g64"
	Tensors       int     `json:"tensors"`
	Parameters    int64   `json:"parameters"`
	BytesBefore   int64   `json:"bytes_before"`
	BytesAfter    int64   `json:"bytes_after"`
	BitsPerWeight float64 `json:"bits_per_weight"`
}

// KeptTensor is a tensor that might have been quantised and was not.
type KeptTensor struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

const vectorClass = "norms, biases"

func reportQuantize(steps []*quantizeStep, p Policy) Report {
	r := Report{Policy: p, Kept: []KeptTensor{}}
	places := map[[2]string]int{}
	var packedBytes, packedParameters int64
	for _, s := range steps {
		key := [2]string{s.module[strings.LastIndexByte(s.module, '.')+1:], s.float.String()}
		if s.vector && s.reason == "" {
			key[0] = vectorClass
		}
		if s.expert { // whose bits may be others than those of a dense layer's
			key[0] = "experts." + key[0]
		}
		n, before, after := int64(s.out)*int64(s.in), s.before(), s.bytes()
		if s.quantized() {
			key[1] = fmt.Sprintf("%v g%d", s.format.DType(), s.format.Group)
			packedBytes, packedParameters = packedBytes+after, packedParameters+n
		} else if s.reason != "" {
			r.Kept = append(r.Kept, KeptTensor{s.name, s.reason})
		}
		i, ok := places[key]
		if !ok {
			i = len(r.Classes)
			places[key] = i
			r.Classes = append(r.Classes, QuantizedClass{Class: key[0], Format: key[1]})
		}
		c := &r.Classes[i]
		c.Tensors, c.Parameters, c.BytesBefore, c.BytesAfter = c.Tensors+1, c.Parameters+n, c.BytesBefore+before, c.BytesAfter+after
		c.BitsPerWeight = bitsPer(c.BytesAfter, c.Parameters)
		r.Parameters, r.BytesBefore, r.BytesAfter = r.Parameters+n, r.BytesBefore+before, r.BytesAfter+after
	}
	r.BitsBefore, r.BitsAfter = bitsPer(r.BytesBefore, r.Parameters), bitsPer(r.BytesAfter, r.Parameters)
	r.BitsQuantized = bitsPer(packedBytes, packedParameters)
	return r
}

func bitsPer(bytes, weights int64) float64 {
	if weights == 0 {
		return 0
	}
	return 8 * float64(bytes) / float64(weights)
}

// Table writes the report for people.
func (r Report) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(class, format string, tensors any, parameters, before, after int64) {
		fmt.Fprintf(w, "%s\t%s\t%v\t%.2f M\t%.2f MB\t%.2f MB\t%.3f\t\n", class, format, tensors,
			float64(parameters)/1e6, float64(before)/1e6, float64(after)/1e6, bitsPer(after, parameters))
	}
	if _, err := fmt.Fprintln(out, r.Policy.Name()); err != nil {
		return err
	}
	fmt.Fprintf(w, "class\tformat\ttensors\tweights\tbefore\tafter\tbits a weight\t\n")
	total := 0
	for _, c := range r.Classes {
		total += c.Tensors
		row(c.Class, c.Format, c.Tensors, c.Parameters, c.BytesBefore, c.BytesAfter)
	}
	row("all", "", total, r.Parameters, r.BytesBefore, r.BytesAfter)
	if err := w.Flush(); err != nil {
		return err
	}
	reasons := map[string]int{}
	var order []string
	for _, k := range r.Kept {
		if reasons[k.Reason] == 0 {
			order = append(order, k.Reason)
		}
		reasons[k.Reason]++
	}
	for _, reason := range order {
		names := make([]string, 0, 4)
		for _, k := range r.Kept {
			if k.Reason == reason && len(names) < 4 {
				names = append(names, k.Name)
			}
		}
		more := ""
		if n := reasons[reason] - len(names); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		if _, err := fmt.Fprintf(out, "kept in bf16 (%s): %s%s\n", reason, strings.Join(names, ", "), more); err != nil {
			return err
		}
	}
	return nil
}
