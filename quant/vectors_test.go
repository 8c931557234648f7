package quant

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"windrow/backend"
)

// vectors.json is written by vectors.py beside it, which shares nothing with
// this package.
type vectors struct {
	Blocks []struct {
		Format, Data string
		Weights      []uint32
	}
	Affine []struct {
		Bits, Group     int
		Source, Weights []uint32
		Data            string
		Scale, Bias     uint16
	}
}

func readVectors(t testing.TB) (v vectors) {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Blocks) != 24 || len(v.Affine) != 24 {
		t.Fatalf("%d blocks and %d affine groups", len(v.Blocks), len(v.Affine))
	}
	return v
}

func decodeHex(t testing.TB, s string) []byte {
	t.Helper()
	data, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func wantBits(t *testing.T, what string, got []float32, want []uint32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d weights, want %d", what, len(got), len(want))
	}
	for i, v := range got {
		// −0 and 0 are the same weight.
		if w := math.Float32frombits(want[i]); math.Float32bits(v) != want[i] && !(v == 0 && w == 0) {
			t.Fatalf("%s: weight %d is %v, want %v", what, i, v, w)
		}
	}
}

// byName are the block types.
var byName = func() map[string]backend.DType {
	types := map[string]backend.DType{}
	for _, d := range backend.DTypes() {
		types[d.String()] = d
	}
	return types
}()

func TestKnownBlocks(t *testing.T) {
	for i, b := range readVectors(t).Blocks {
		x := backend.Tensor{Name: b.Format, DType: byName[b.Format], Shape: []int{1, len(b.Weights)}, Data: decodeHex(t, b.Data)}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(b.Weights))
		Row(got, &x, 0)
		wantBits(t, fmt.Sprintf("%s %d", b.Format, i), got, b.Weights)
	}
}

func TestKnownAffineGroups(t *testing.T) {
	for i, a := range readVectors(t).Affine {
		what := fmt.Sprintf("group %d: %d bits, %d weights", i, a.Bits, a.Group)
		source := make([]float32, a.Group)
		for j, b := range a.Source {
			source[j] = math.Float32frombits(b)
		}
		data, scale, bias := make([]byte, a.Group*a.Bits/8), make([]byte, 2), make([]byte, 2)
		Affine(data, scale, bias, source, a.Bits, a.Group)
		if got := hex.EncodeToString(data); got != a.Data {
			t.Errorf("%s: packed\n%s, want\n%s", what, got, a.Data)
		}
		if s, b := binary.LittleEndian.Uint16(scale), binary.LittleEndian.Uint16(bias); s != a.Scale || b != a.Bias {
			t.Errorf("%s: scale %04x and bias %04x, want %04x and %04x", what, s, b, a.Scale, a.Bias)
		}
		got := make([]float32, a.Group)
		AffineToF32(got, data, scale, bias, a.Bits, a.Group)
		wantBits(t, what, got, a.Weights)
	}
}

// ggml's reference encoders, by hand: the element of largest magnitude is
// −8·d in Q4_0 and ±127·d in Q8_0; halves round away from zero in Q8_0.
func TestKnownEncodings(t *testing.T) {
	x := make([]float32, 32)
	x[0], x[1], x[2], x[16], x[31] = 8, -8, 0.49, 7, -4.51
	data := make([]byte, 18)
	F32ToQ4_0(data, x)
	// d = 8/−8 = −1: 8 → 0, −8 → 16 clipped to 15, 0.49 → 8, 7 → 1, −4.51 → 13.
	if want := "00bc" + "10" + "8f" + "88" + "888888888888888888888888" + "d8"; hex.EncodeToString(data) != want {
		t.Errorf("q4_0: %x, want %s", data, want)
	}
	clear(x)
	x[0], x[1], x[2], x[3], x[31] = 127, -127, 2.5, -2.5, 0.49
	data = make([]byte, 34)
	F32ToQ8_0(data, x)
	if want := "003c" + "7f81" + "03" + "fd"; hex.EncodeToString(data[:6]) != want || data[33] != 0 {
		t.Errorf("q8_0: %x, want %s…00", data, want)
	}
}
