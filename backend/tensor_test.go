package backend

import (
	"context"
	"math"
	"strings"
	"testing"
)

func TestDTypes(t *testing.T) {
	for _, tc := range []struct {
		d                       DType
		name                    string
		size, block, bits, row  int // row: bytes of 512 elements
		quantized, affine, none bool
	}{
		{F32, "f32", 4, 1, 32, 2048, false, false, false},
		{F16, "f16", 2, 1, 16, 1024, false, false, false},
		{BF16, "bf16", 2, 1, 16, 1024, false, false, false},
		{Affine4, "affine4", 0, 8, 4, 256, true, true, false},
		{Affine8, "affine8", 0, 4, 8, 512, true, true, false},
		{Q8_0, "q8_0", 0, 32, 8, 544, true, false, false},
		{Q4_0, "q4_0", 0, 32, 4, 288, true, false, false},
		{Q4_K, "q4_k", 0, 256, 4, 288, true, false, false},
		{Q6_K, "q6_k", 0, 256, 6, 420, true, false, false},
		{F8_E4M3, "f8_e4m3", 0, 1, 8, 512, true, false, false},
		{0, "dtype(0)", 0, 0, 0, 0, false, false, true},
		{Q4_1, "q4_1", 0, 32, 4, 320, true, false, false},
		{Q5_0, "q5_0", 0, 32, 5, 352, true, false, false},
		{Q5_1, "q5_1", 0, 32, 5, 384, true, false, false},
		{Q2_K, "q2_k", 0, 256, 2, 168, true, false, false},
		{Q3_K, "q3_k", 0, 256, 3, 220, true, false, false},
		{Q5_K, "q5_k", 0, 256, 5, 352, true, false, false},
		{IQ4_NL, "iq4_nl", 0, 32, 4, 288, true, false, false},
		{IQ4_XS, "iq4_xs", 0, 256, 4, 272, true, false, false},
		{F8_E4M3 + 1, "dtype(19)", 0, 0, 0, 0, false, false, true},
	} {
		d := tc.d
		if d.String() != tc.name || d.Size() != tc.size || d.BlockSize() != tc.block || d.Bits() != tc.bits ||
			d.RowBytes(512) != tc.row || d.Quantized() != tc.quantized || d.Affine() != tc.affine {
			t.Errorf("%v: size %d, block %d, bits %d, row %d, quantized %v, affine %v", d, d.Size(), d.BlockSize(), d.Bits(), d.RowBytes(512), d.Quantized(), d.Affine())
		}
	}
	if Q4_K.RowBytes(384) != 0 {
		t.Error("a row of 384 is no whole number of blocks of 256")
	}
}

func TestTensorCheck(t *testing.T) {
	bytes := func(n int) []byte { return make([]byte, n) }
	affine := Tensor{Name: "w", DType: Affine4, Shape: []int{3, 64}, Data: bytes(96), Group: 32, Scales: bytes(12), Biases: bytes(12)}
	with := func(edit func(*Tensor)) Tensor {
		x := affine
		edit(&x)
		return x
	}
	for _, tc := range []struct {
		tensor Tensor
		want   string // "": fine
	}{
		{Tensor{DType: F32, Shape: []int{3}, Data: bytes(12)}, ""},
		{Tensor{DType: BF16, Shape: []int{2, 3}, Data: bytes(12)}, ""},
		{Tensor{DType: Q8_0, Shape: []int{2, 64}, Data: bytes(136)}, ""},
		{Tensor{DType: Q4_K, Shape: []int{1, 512}, Data: bytes(288)}, ""},
		{affine, ""},
		{Tensor{Name: "w", Shape: []int{1}}, "unknown dtype(0)"},
		{Tensor{DType: F32}, "want positive dimensions"},
		{Tensor{DType: F32, Shape: []int{-1, -1}, Data: bytes(4)}, "want positive dimensions"},
		{Tensor{DType: F32, Shape: []int{math.MaxInt, 4}, Data: bytes(4)}, "want positive dimensions"},
		{Tensor{DType: Q8_0, Shape: []int{64}, Data: bytes(68)}, "want [out, in]"},
		{Tensor{DType: Q8_0, Shape: []int{2, 48}, Data: bytes(102)}, "rows of 48, want a multiple of 32"},
		{Tensor{DType: Q6_K, Shape: []int{1, 256}, Data: bytes(209)}, "209 bytes of q6_k, want 210"},
		{Tensor{DType: F16, Shape: []int{2}, Data: bytes(4), Group: 32}, "want none"},
		{with(func(x *Tensor) { x.Group = 16 }), "groups of 16, want 32, 64 or 128"},
		{with(func(x *Tensor) { x.Group = 128 }), "want a multiple of the group 128"},
		{with(func(x *Tensor) { x.Scales = nil }), "0 bytes of scales and 12 of biases, want 12"},
		{with(func(x *Tensor) { x.Biases = bytes(13) }), "12 bytes of scales and 13 of biases"},
		{with(func(x *Tensor) { x.Data = bytes(95) }), "95 bytes of affine4, want 96"},
	} {
		err := tc.tensor.Check()
		if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v, want %q", tc.tensor, err, tc.want)
		}
	}
	if n := affine.Bytes(); n != 120 || affine.BitsPerWeight() != 5 || affine.Elements() != 192 {
		t.Errorf("%d bytes, %g bits a weight of %d", n, affine.BitsPerWeight(), affine.Elements())
	}
}

func TestFloat8Check(t *testing.T) {
	whole := Tensor{Name: "w", DType: F8_E4M3, Shape: []int{3, 40}, Group: 16}.Allocated()
	if err := whole.Check(); err != nil || len(whole.Data) != 120 || len(whole.Scales) != 3*3*4 || whole.Bytes() != 156 || whole.Groups() != 3 {
		t.Errorf("%d bytes, %d of scales: %v", len(whole.Data), len(whole.Scales), err)
	}
	for want, edit := range map[string]func(*Tensor){
		"groups of 0, want a positive length":            func(x *Tensor) { x.Group = 0 },
		"32 bytes of scales and 0 of biases, want 36":    func(x *Tensor) { x.Scales = x.Scales[:32] },
		"36 bytes of scales and 1 of biases, want 36":    func(x *Tensor) { x.Biases = make([]byte, 1) },
		"119 bytes of f8_e4m3, want 120":                 func(x *Tensor) { x.Data = x.Data[:119] },
		"want [out, in]":                                 func(x *Tensor) { x.Shape = []int{120} },
		"has not been made":                              func(x *Tensor) { x.Make = func(context.Context) (Tensor, error) { return whole, nil } },
		"36 bytes of scales and 0 of biases, want 12 an": func(x *Tensor) { x.Group = 40 },
	} {
		x := whole
		edit(&x)
		if err := x.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// One that is to be made counts what it will take.
	affine := Tensor{DType: Affine4, Shape: []int{3, 64}, Group: 32, Make: func(context.Context) (Tensor, error) { return Tensor{}, nil }}
	if affine.Bytes() != 120 || affine.BitsPerWeight() != 5 {
		t.Errorf("%d bytes, %g bits a weight", affine.Bytes(), affine.BitsPerWeight())
	}
}
