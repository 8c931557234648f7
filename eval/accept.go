package eval

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
)

// AcceptLimits are the largest losses at which a quantisation is accepted.
type AcceptLimits struct {
	// AccuracyPoints is in points of accuracy: 1 allows 97 % for 98 %.
	AccuracyPoints float64 `json:"accuracy_points"`
	// TokensPerForwardPercent is relative: 5 allows 3.8 for 4.
	TokensPerForwardPercent float64 `json:"tokens_per_forward_percent"`
}

// Acceptance is the verdict on a quantisation.
type Acceptance struct {
	FormsReport
	Limits AcceptLimits `json:"limits"`
	// The losses on the problems that both answered; negative for gains.
	AccuracyLossPoints          float64 `json:"accuracy_loss_points"`
	TokensPerForwardLossPercent float64 `json:"tokens_per_forward_loss_percent"`
	Accepted                    bool    `json:"accepted"`
	// Reasons say by how much each limit was passed.
	Reasons []string `json:"reasons,omitempty"`
}

// Accept compares a form with its source and checks what it loses against the
// limits: the paired difference in accuracy, and tokens per forward. c is as in
// [CompareForms]; an interrupted run accepts nothing.
func Accept(ctx context.Context, source, candidate Form, limits AcceptLimits, c GSM8K) (*Acceptance, error) {
	r, err := CompareForms(ctx, source, []Form{candidate}, c)
	if r == nil {
		return nil, err
	}
	a := &Acceptance{FormsReport: *r, Limits: limits}
	if err == nil {
		a.judge()
	}
	return a, err
}

func (a *Acceptance) judge() {
	f := a.Forms[1]
	if f.Kept != "" {
		a.Reasons = append(a.Reasons, "nothing was quantised: "+f.Kept)
		return
	}
	// Four decimals: 1/500 is 0.2 points, and −0.05 as a float64 is not 5 %.
	short := func(v float64) float64 { return math.Round(v*1e4)/1e4 + 0 }
	a.AccuracyLossPoints = short(-100 * f.ToSource.AccuracyChange)
	a.TokensPerForwardLossPercent = short(-100 * f.ToSource.TokensPerForwardChange)
	if over := a.AccuracyLossPoints - a.Limits.AccuracyPoints; over > 0 {
		a.Reasons = append(a.Reasons, fmt.Sprintf("loses %s points of accuracy, %s more than the %s allowed",
			decimals(a.AccuracyLossPoints), decimals(over), decimals(a.Limits.AccuracyPoints)))
	}
	if over := a.TokensPerForwardLossPercent - a.Limits.TokensPerForwardPercent; over > 0 {
		a.Reasons = append(a.Reasons, fmt.Sprintf("loses %s %% of the tokens per forward, %s more than the %s allowed",
			decimals(a.TokensPerForwardLossPercent), decimals(over), decimals(a.Limits.TokensPerForwardPercent)))
	}
	a.Accepted = len(a.Reasons) == 0
}

// WriteAcceptance writes the comparison as a table, and the verdict.
func WriteAcceptance(w io.Writer, a *Acceptance) error {
	if err := WriteForms(w, &a.FormsReport, "format"); err != nil || !a.Complete {
		return err
	}
	verdict := "accepted"
	if !a.Accepted {
		verdict = "not accepted: " + strings.Join(a.Reasons, "; ")
	} else if c := a.Forms[1].ToSource; 100*c.AccuracyChangeLow < -a.Limits.AccuracyPoints {
		verdict += fmt.Sprintf("; %d problems cannot rule out a loss of %s points (95 %%)", c.N, decimals(-100*c.AccuracyChangeLow))
	}
	_, err := fmt.Fprintf(w, "\naccuracy %+.2f points (limit -%s), tokens per forward %+.2f %% (limit -%s %%): %s\n",
		-a.AccuracyLossPoints+0, decimals(a.Limits.AccuracyPoints), -a.TokensPerForwardLossPercent+0, decimals(a.Limits.TokensPerForwardPercent), verdict)
	return err
}

// decimals prints up to two decimals.
func decimals(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
}

// pairedInterval is the 95 % interval of the difference of two paired
// proportions, (onlyThis − onlyFirst)/n as a share: Wald's with half a pair
// added to each of the four cells (Agresti and Min, Statistics in Medicine 24,
// 2005), which keeps its coverage for few discordant pairs. Of no pairs nothing
// is known: −1 to 1.
func pairedInterval(onlyFirst, onlyThis, n int) (low, high float64) {
	if n <= 0 {
		return -1, 1
	}
	b, c, m := float64(onlyFirst)+0.5, float64(onlyThis)+0.5, float64(n)+2
	d := c - b
	half := z95 * math.Sqrt(b+c-d*d/m)
	return max(-1, (d-half)/m), min(1, (d+half)/m)
}
