package backendtest

import (
	"context"
	"testing"

	"windrow/backend"
)

// listed is a program under test, as it is listed.
type listed struct {
	*backend.Program
	t *testing.T
	b backend.Backend
}

func begin(t *testing.T, b backend.Backend) *listed {
	t.Helper()
	return &listed{new(backend.Program), t, b}
}

// load puts the rows of an f32 array [rows, width] into a buffer, where the tokens
// are those of rowsOf.
func (l *listed) load(a array) backend.Buffer {
	l.t.Helper()
	buf := l.Buffer(a.tensor.Shape[1])
	l.Embed(buf, matrix(l.t, l.b, a))
	return buf
}

func (l *listed) compile() backend.Forward {
	l.t.Helper()
	f, err := l.b.Compile(l.Program)
	if err != nil {
		l.t.Fatal(err)
	}
	return f
}

// run compiles the program, runs one forward, and returns its results and what its
// taps showed.
func (l *listed) run(v backend.Values) (results []backend.Result, taps [][]float32) {
	l.t.Helper()
	f := l.compile()
	defer f.Close()
	return tapped(l.t, f, v)
}

// tapped runs a forward and returns its results and what its taps showed.
func tapped(t *testing.T, f backend.Forward, v backend.Values) (results []backend.Result, taps [][]float32) {
	t.Helper()
	v.Tap = func(i int, states []float32) {
		if i != len(taps) {
			t.Fatalf("tap %d after %d of them", i, len(taps))
		}
		taps = append(taps, states)
	}
	return run(t, f, v), taps
}

// run runs a forward; positions are 0 where v has none.
func run(t *testing.T, f backend.Forward, v backend.Values) []backend.Result {
	t.Helper()
	if v.Positions == nil {
		v.Positions = make([]int32, len(v.Tokens))
	}
	if err := f.Start(context.Background(), v); err != nil {
		t.Fatal(err)
	}
	results, err := f.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(v.Want) {
		t.Fatalf("%d results, %d are wanted", len(results), len(v.Want))
	}
	return results
}

// rowsOf are values of that many rows, each with its own number as its token.
func rowsOf(n int) backend.Values {
	v := backend.Values{Tokens: make([]int32, n), Positions: make([]int32, n)}
	for i := range v.Tokens {
		v.Tokens[i] = int32(i)
	}
	return v
}

// angles are those of some positions [positions, pairs].
type angles struct {
	pairs    int
	cos, sin []float32
}

func (a *angles) Pairs() int { return a.pairs }

func (a *angles) Fill(cos, sin []float32, positions []int32) {
	n := a.pairs
	for r, p := range positions {
		copy(cos[r*n:(r+1)*n], a.cos[int(p)*n:int(p+1)*n])
		copy(sin[r*n:(r+1)*n], a.sin[int(p)*n:int(p+1)*n])
	}
}

// rotation makes angles of that many positions by a rule.
func rotation(t *testing.T, b backend.Backend, pairs, positions int, rule func(position, pair int) (cos, sin float32)) (*angles, backend.Rotation) {
	t.Helper()
	a := &angles{pairs: pairs}
	for p := range positions {
		for i := range pairs {
			c, s := rule(p, i)
			a.cos, a.sin = append(a.cos, c), append(a.sin, s)
		}
	}
	r, err := b.Rotation(a, positions)
	if err != nil {
		t.Fatal(err)
	}
	return a, r
}

// someAngles is a rule that tells positions and pairs apart.
func someAngles(position, pair int) (cos, sin float32) {
	return 1 / float32(1+(position+pair)%5), float32(position%7) / 7
}
