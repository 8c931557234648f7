package decoder

import (
	"context"

	"windrow/model"
)

// A Drafter proposes tokens for one sequence of [Verified], beside the model that checks
// them: text never depends on it. What it proposes is weighed by how often such
// proposals stood, and by what they cost.
type Drafter interface {
	// Kind is what reports call it.
	Kind() DrafterKind
	// Follow tells of tokens that are certain, each once and in order: first the prompt's,
	// then those that are generated. rows are the results that they were drawn from; none
	// for the prompt's.
	Follow(tokens []int32, rows []model.Result)
	// Propose proposes what may come behind the tokens that were followed, one token
	// after the other, until the proposal takes no more. After an error, such as that of
	// a context that ends, it may be called again.
	Propose(ctx context.Context, p *Proposal) error
	// Seconds is what the proposal of a token takes beside its row; 0: nothing to speak of.
	Seconds() float64
	// Close frees what it holds.
	Close()
}

// DrafterKind is who proposed a draft.
type DrafterKind uint8

// The kinds of drafters.
const (
	MaskDrafter       DrafterKind = iota // the masks of the window
	ConstraintDrafter                    // text that a constraint forces
	LookupDrafter                        // what followed the same tokens before
	ModelDrafter                         // a smaller model
	HeadDrafter                          // the model's own head for drafts
	drafterKinds
)

var drafterNames = [drafterKinds]string{"mask", "forced", "lookup", "model", "mtp"}

// String is the name in reports.
func (k DrafterKind) String() string {
	if int(k) < len(drafterNames) {
		return drafterNames[k]
	}
	return "unknown"
}

// promptDrafter is a Drafter that reads a prompt while it is computed: what is done of it,
// from its beginning on.
type promptDrafter interface {
	Drafter
	readPrompt(ctx context.Context, t *turn, done []int32) error
}

// DraftChoice says who drafts in [Verified].
type DraftChoice string

// The choices. "" is DraftMask.
const (
	// DraftAuto is all that is there: masks where the model has them, else its head for
	// drafts (Options.Head), and lookups. Each step takes of them what promises the most;
	// where Options.Cost does not say what rows cost, a model with masks drafts with these
	// alone. Where it does, a model with both drafts with what is expected to bring more.
	DraftAuto   DraftChoice = "auto"
	DraftMask   DraftChoice = "mask"   // the window's masks
	DraftLookup DraftChoice = "lookup" // what followed the same tokens before
	DraftModel  DraftChoice = "model"  // Options.NewDrafter's
	DraftMTP    DraftChoice = "mtp"    // the model's own head: Options.Head
	DraftNone   DraftChoice = "none"   // nobody: the rows of ar
)

// masks reports whether the window drafts.
func (c DraftChoice) masks() bool { return c == "" || c == DraftMask || c == DraftAuto }

// NeedsMask reports whether the choice drafts nothing in a model without a mask token.
func (c DraftChoice) NeedsMask() bool { return c == "" || c == DraftMask }

// draft is a token, who proposed it, and of what class it is among those whose chances
// are learned.
type draft struct {
	token int32
	by    DrafterKind
	class class
}

// Proposal takes what a drafter proposes, and puts between it what a constraint forces.
type Proposal struct {
	v       *verified
	by      DrafterKind
	seconds float64 // of a forward that proposes a token, were it the sequence's own
	took    float64 // by forwards so far: the sequence's part of them
	at      Constraint
	ahead   []int32 // the token that is right by construction, and what is proposed behind it
	list    []draft
	sure    float64 // the chance that all of it stands
	open    bool    // there may be more
	made    int     // rows that it took to propose, in so many forwards
	drawn   int     // drafts of forwards
	turn    *turn   // of the forwards of the drafter; nil: they are its own
	most    int     // drafts that are of use; 0: any number
	always  bool    // they are, whatever is expected of them
}

func (v *verified) propose(by DrafterKind, seconds float64) *Proposal {
	p := &Proposal{v: v, by: by, seconds: seconds, ahead: []int32{v.fill[0].token}, sure: 1}
	if v.s.at != nil {
		p.at = v.s.at.Clone()
	}
	p.settle()
	return p
}

// settle moves the constraint behind the newest token, and adds what it forces there.
func (p *Proposal) settle() {
	v := p.v
	p.open = false
	for {
		j := len(p.ahead)
		if v.stop(p.ahead[j-1]) {
			return
		}
		if p.at == nil {
			break
		}
		if j > 1 && !p.at.Advance(p.ahead[j-1]) { // the first was emitted
			return
		}
		// at stands before the last token of ahead when the next round begins.
		for i, token := range v.forcing.drafts(p.at) {
			if p.full() || i > 0 && !p.at.Advance(p.ahead[len(p.ahead)-1]) {
				return
			}
			p.put(draft{token: token, by: ConstraintDrafter})
		}
		if len(p.ahead) == j {
			break
		}
	}
	p.open = true
}

func (p *Proposal) full() bool { return p.v.full(len(p.ahead)) }

func (p *Proposal) put(d draft) {
	p.list = append(p.list, d)
	p.ahead = append(p.ahead, d.token)
}

// Ahead are the tokens proposed so far behind those that were followed, forced ones
// among them.
func (p *Proposal) Ahead() []int32 { return p.ahead[1:] }

// add proposes a token, and reports whether there may be one more.
func (p *Proposal) add(token int32, c class) bool {
	o := p.v.s.vocab
	if !p.open || p.full() || token < 0 || token == o.MaskID || o.Size > 0 && token >= o.Size || p.at != nil && !p.v.stop(token) && !p.at.Allowed(token) {
		p.open = false
		return false
	}
	p.sure *= p.v.control.chance(c)
	p.put(draft{token: token, by: p.by, class: c})
	p.settle()
	return p.open && !p.full()
}

// Pays reports whether one more draft is expected to be worth its row, and a forward of
// the drafter's that proposes it.
func (p *Proposal) Pays() bool {
	if !p.open || p.full() || p.most > 0 && len(p.list) >= p.most {
		return false
	}
	if p.always {
		return true
	}
	if p.turn != nil && p.v.price != nil {
		if chance, decides := p.v.control.likely(p.sure, p.drawn); decides { // beside the others'
			p.turn.value, p.turn.unweighed = chance, false
			return chance > p.v.price.Row
		}
	}
	return p.v.control.pays(p.sure, p.drawn, len(p.list), p.seconds, p.v.price)
}

// Wants is what a row must bring for Draw.
func (p *Proposal) Wants() model.Wanted {
	w := model.Wanted{Logits: p.v.s.needsLogits()}
	if p.at != nil && !w.Logits {
		w.TopK = constrainedTop
	}
	return w
}

// Draw proposes what a drafter's row says, by the sampling of the sequence and with its
// random variables, so that a draft stands as often as the two distributions allow. It
// reports whether there may be one more; rows is how many the forward had.
func (p *Proposal) Draw(r model.Result, rows int) (more bool, err error) {
	p.made += rows
	took := p.seconds
	if p.turn != nil {
		took = p.turn.part
	}
	p.took += took
	if !p.open || p.full() {
		return false, nil
	}
	token, ok, err := p.v.drawDraft(r, p.ahead, p.at, len(p.ahead))
	if err != nil || !ok {
		p.open = false
		return false, err
	}
	c := modelClass(r.Entropy)
	if p.by == HeadDrafter {
		c = headClass(p.drawn, r.Entropy)
	}
	p.v.control.proposed(p.drawn, c, took)
	p.drawn++
	return p.add(token, c), nil
}

// classes are the classes of the drafts that a control chooses among: all but forced
// ones, which follow the draft that they stand behind.
func classes(drafts []draft) []class {
	list := make([]class, 0, len(drafts))
	for _, d := range drafts {
		if d.by != ConstraintDrafter {
			list = append(list, d.class)
		}
	}
	return list
}

// certain are the tokens that a step showed to be right, each beside the row that it was
// drawn from: the accepted drafts, and the token behind them.
func certain(accepted []draft, next int32) []int32 {
	tokens := make([]int32, 0, len(accepted)+1)
	for _, d := range accepted {
		tokens = append(tokens, d.token)
	}
	return append(tokens, next)
}
