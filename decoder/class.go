package decoder

// class is what is known of a draft before it is checked: who proposed it, and how sure
// it looked. The chance that it stands is learned by class.
type class int

// The classes of masks' drafts are by the entropy of their rows, in nats; so are those
// of a smaller model, and those of a head for drafts, the first ones and those behind
// apart. Those of lookups are by how many tokens before a draft have
// occurred before it where it was found.
var (
	trustBelow  = []float32{.05, .2, .4, .8, 1.6, 3}
	lookupBelow = []int{3, 4, 6, 10, 18, 34}
)

const (
	maskClasses   = 7
	lookupClasses = 7
	modelClasses  = 7
	headClasses   = 14
	allClasses    = maskClasses + lookupClasses + modelClasses + headClasses
)

// trustPrior are the chances assumed where nothing was seen.
var trustPrior = []float64{
	.97, .93, .88, .7, .5, .3, .1,
	.15, .3, .5, .7, .85, .92, .96,
	.97, .93, .88, .7, .5, .3, .1,
	.97, .93, .88, .7, .5, .3, .1,
	.93, .88, .8, .6, .4, .25, .1,
}

func entropyClass(h float32) class {
	i := class(0)
	for int(i) < len(trustBelow) && h >= trustBelow[i] {
		i++
	}
	return i
}

func lookupClass(match int) class {
	i := class(0)
	for int(i) < len(lookupBelow) && match >= lookupBelow[i] {
		i++
	}
	return maskClasses + i
}

func modelClass(h float32) class { return maskClasses + lookupClasses + entropyClass(h) }

// headClass is that of the draft of a head behind so many others.
func headClass(behind int, h float32) class {
	c := maskClasses + lookupClasses + modelClasses + entropyClass(h)
	if behind > 0 {
		c += headClasses / 2
	}
	return c
}

// ofMask reports whether a mask proposed the draft.
func (c class) ofMask() bool { return c < maskClasses }
