package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"windrow/decoder"
)

// Calibration is what was measured of a model's drafts on some prompts: kept beside
// c(rows), it is what generations in mode verified begin with. It changes speed, never
// text.
type Calibration struct {
	// EntropyThreshold and PosPenalty are τ and λ of a fixed window; nil where the model
	// has no masks.
	EntropyThreshold *float32 `json:"entropy_threshold,omitempty"`
	PosPenalty       *float32 `json:"pos_penalty,omitempty"`
	// Known is how often drafts stood, by class.
	Known decoder.Known `json:"known"`
	// Data names the prompts, of which there were so many, and Tokens is what was
	// generated.
	Data    string    `json:"data"`
	Prompts int       `json:"prompts"`
	Tokens  int       `json:"tokens"`
	Time    time.Time `json:"time"`
	// Trials are the settings that were compared, in order.
	Trials []Trial `json:"trials,omitempty"`
}

// Trial is a fixed window's setting, and what it made for the time of a one-row forward,
// by c(rows).
type Trial struct {
	EntropyThreshold float32 `json:"entropy_threshold"`
	PosPenalty       float32 `json:"pos_penalty"`
	Rate             float64 `json:"rate"`
}

// What Calibrate compares: first the thresholds at the first penalty, then the penalties
// at the best of them.
var (
	trialThresholds = []float32{0.4, 0.1, 0.2, 0.8, 1.6, 3.2}
	trialPenalties  = []float32{0.02, 0, 0.05, 0.1}
)

// takeEverything is a τ over any entropy.
const takeEverything = 100

// ErrNoCalibration is a model of which no calibration can be kept: it was not opened from
// files, or c(rows) cannot be measured.
var ErrNoCalibration = errors.New("no calibration can be kept: want a model from files, and c(rows) measured")

// Calibrate answers prompts in mode verified, and keeps what its drafts were seen to be
// worth for later starts of this build. progress is given runs done and to do; nil:
// nobody.
//
// Errors: ErrNoCalibration, ErrEmptyPrompt, those of Complete, or of a forward; nothing
// is kept then.
func (e *Engine) Calibrate(ctx context.Context, data string, prompts [][]int32, o decoder.Options, progress func(done, total int)) (*Calibration, error) {
	cost := e.Cost(ctx)
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if cost == nil || e.files == nil || e.shared {
		return nil, ErrNoCalibration
	}
	if len(prompts) == 0 {
		return nil, ErrEmptyPrompt
	}
	masks := e.Defaults(decoder.Options{}).Vocabulary.MaskID >= 0
	total := 1 // a run for each choice of who drafts, and for each trial
	if e.drafts() {
		total++
	}
	if masks {
		total += 1 + len(trialThresholds) + len(trialPenalties) - 1
	}
	c := &calibrating{engine: e, cost: cost, prompts: prompts, options: o, total: total * len(prompts), progress: progress}
	y := &Calibration{Data: data, Prompts: len(prompts), Time: time.Now().UTC()}
	record := decoder.NewRecord()
	drafts := []decoder.DraftChoice{decoder.DraftLookup}
	if masks {
		drafts = append(drafts, decoder.DraftMask)
	}
	if e.drafts() {
		drafts = append(drafts, decoder.DraftMTP)
	}
	for _, d := range drafts {
		tokens, _, err := c.run(ctx, Trial{EntropyThreshold: takeEverything}, d, record)
		if d == decoder.DraftMTP && err != nil && e.headless.Load() != nil {
			continue // a broken one has nothing to show
		}
		if err != nil {
			return nil, err
		}
		y.Tokens = tokens
	}
	y.Known = record.Known()
	if masks {
		if err := c.compare(ctx, y); err != nil {
			return nil, err
		}
	}
	return y, e.calibrated(y)
}

// calibrating is a calibration that goes on.
type calibrating struct {
	engine      *Engine
	cost        *decoder.CostModel
	prompts     [][]int32
	options     decoder.Options
	done, total int
	progress    func(done, total int)
}

// run answers all prompts in a setting, and returns the tokens, and what their steps cost
// in one-row forwards.
func (c *calibrating) run(ctx context.Context, t Trial, d decoder.DraftChoice, record *decoder.Experience) (tokens int, paid float64, err error) {
	o := c.options
	def := decoder.DefaultOptions()
	o.Mode, o.Draft, o.Window, o.Experience, o.Cost = decoder.Verified, d, def.Window, record, nil
	o.EntropyThreshold, o.PosPenalty = &t.EntropyThreshold, t.PosPenalty
	for _, prompt := range c.prompts {
		sum, err := c.engine.Answer(ctx, prompt, o, decoder.Hooks{Step: func(s decoder.Step) { paid += c.cost.Ratio(len(s.Slots)) }})
		if err == nil && sum.FinishReason == decoder.FinishCancelled {
			err = context.Cause(ctx)
		}
		if err != nil {
			return 0, 0, err
		}
		tokens += len(sum.Tokens)
		if c.done++; c.progress != nil {
			c.progress(c.done, c.total)
		}
	}
	return tokens, paid, nil
}

// compare finds τ and λ.
func (c *calibrating) compare(ctx context.Context, y *Calibration) error {
	best := Trial{EntropyThreshold: trialThresholds[0], PosPenalty: trialPenalties[0], Rate: math.Inf(-1)}
	try := func(t Trial) error {
		tokens, paid, err := c.run(ctx, t, decoder.DraftMask, nil)
		if err != nil {
			return err
		}
		t.Rate = float64(tokens) / max(paid, 1)
		y.Trials = append(y.Trials, t)
		if t.Rate > best.Rate {
			best = t
		}
		return nil
	}
	for _, tau := range trialThresholds {
		if err := try(Trial{EntropyThreshold: tau, PosPenalty: trialPenalties[0]}); err != nil {
			return err
		}
	}
	tau := best.EntropyThreshold
	for _, lambda := range trialPenalties[1:] {
		if err := try(Trial{EntropyThreshold: tau, PosPenalty: lambda}); err != nil {
			return err
		}
	}
	y.EntropyThreshold, y.PosPenalty = &best.EntropyThreshold, &best.PosPenalty
	return nil
}

// usable checks what a file held.
func (c *Calibration) usable() bool {
	number := func(x *float32) bool { return x == nil || *x >= 0 && *x <= takeEverything }
	return decoder.NewExperience().Learn(c.Known) == nil && number(c.EntropyThreshold) && number(c.PosPenalty) &&
		(c.EntropyThreshold == nil) == (c.PosPenalty == nil)
}

// String is one line for people.
func (c *Calibration) String() string {
	text := ""
	if c.EntropyThreshold != nil {
		text = fmt.Sprintf("τ %v, λ %v and ", *c.EntropyThreshold, *c.PosPenalty)
	}
	return fmt.Sprintf("%sacceptance by class, of %d prompts of %.40q, %s", text, c.Prompts, c.Data, c.Time.Format(time.DateOnly))
}

// Calibrated puts τ and λ of the calibration into options of mode verified, where there
// is one.
func (e *Engine) Calibrated(o decoder.Options) decoder.Options {
	if c := e.Calibration(); c != nil && o.Mode == decoder.Verified && c.EntropyThreshold != nil {
		o.EntropyThreshold, o.PosPenalty = c.EntropyThreshold, *c.PosPenalty
	}
	return o
}
