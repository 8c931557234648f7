package decoder

import "slices"

// found is what drafters other than masks had to offer in the last steps of all texts of
// a model: the tokens that each number of drafts was expected to make.
type found struct {
	earned [][]float64 // of a step, by drafts fed; nil: masks went on, or nothing
	next   int
}

// foundSteps is how many steps count.
const foundSteps = 128

// add counts a step. earned is the caller's to change.
func (f *found) add(earned []float64) {
	earned = slices.Clone(earned)
	if len(f.earned) < foundSteps {
		f.earned = append(f.earned, earned)
		return
	}
	f.earned[f.next] = earned
	f.next = (f.next + 1) % foundSteps
}

func (f *found) clone() found { return found{earned: slices.Clone(f.earned)} }

// mix makes what a sequence does with masks alone into what it does with what is found,
// at the same price: as often as something was.
func (f *found) mix(o *Offer) {
	if !slices.ContainsFunc(f.earned, func(e []float64) bool { return e != nil }) {
		return
	}
	var tokens, rows float64
	for _, earned := range f.earned {
		at := -1
		for d, t := range earned {
			if at < 0 || t-o.Row*float64(d) > earned[at]-o.Row*float64(at) {
				at = d
			}
		}
		if at < 0 {
			tokens, rows = tokens+o.Tokens, rows+o.Rows
			continue
		}
		tokens, rows = tokens+earned[at], rows+float64(1+at)
	}
	o.Tokens, o.Rows = tokens/float64(len(f.earned)), rows/float64(len(f.earned))
}
