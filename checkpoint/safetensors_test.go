package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/internal/testhelp"
)

// rawSafetensors puts a header of any text before a body.
func rawSafetensors(header string, body int) []byte {
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(data, header...), make([]byte, body)...)
}

func TestReadSafetensors(t *testing.T) {
	// The order of the header is not that of the data, and nothing is aligned.
	s, err := ReadSafetensors(rawSafetensors(`{"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[1,13]},`+
		`"__metadata__":{"format":"pt"},"a":{"data_offsets":[0,1],"shape":[],"dtype":"U8"},`+
		`"none":{"dtype":"F32","shape":[0,4611686018427387904],"data_offsets":[13,13]},`+
		`"q":{"dtype":"F4","shape":[4],"data_offsets":[13,15]}}   `, 15))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tensor := range s.Tensors {
		names = append(names, tensor.Name)
	}
	if got := fmt.Sprint(names); got != "[a b none q]" {
		t.Errorf("order %s, want that of the data", got)
	}
	if s.Metadata["format"] != "pt" {
		t.Errorf("metadata %v", s.Metadata)
	}
	b, _ := s.Lookup("b")
	w, err := b.Weight()
	if err != nil || w.DType != backend.BF16 || fmt.Sprint(w.Shape) != "[2 3]" || len(w.Data) != 12 {
		t.Errorf("weight b: %+v, %v", w, err)
	}
	a, _ := s.Lookup("a")
	if _, err := a.Weight(); err == nil {
		t.Error("a U8 tensor passed for a weight")
	}
	if _, ok := s.Lookup("c"); ok {
		t.Error("found a tensor that is not there")
	}
	if empty, err := ReadSafetensors(rawSafetensors(`{}`, 0)); err != nil || len(empty.Tensors) != 0 {
		t.Errorf("no tensors: %v", err)
	}
}

func TestRawTensorElements(t *testing.T) {
	le := binary.LittleEndian
	floats := RawTensor{DType: "F32", Data: le.AppendUint32(le.AppendUint32(nil, math.Float32bits(-1.5)), math.Float32bits(3))}
	if got, err := floats.Float32s(); err != nil || fmt.Sprint(got) != "[-1.5 3]" {
		t.Errorf("floats %v, %v", got, err)
	}
	if _, err := floats.Int32s(); err == nil {
		t.Error("F32 read as integers")
	}
	minusTwo := int64(-2)
	longs := RawTensor{DType: "I64", Data: le.AppendUint64(nil, uint64(minusTwo))}
	if got, err := longs.Int32s(); err != nil || fmt.Sprint(got) != "[-2]" {
		t.Errorf("longs %v, %v", got, err)
	}
	longs.Data = le.AppendUint64(nil, 1<<31)
	if _, err := longs.Int32s(); err == nil {
		t.Error("2³¹ read as an int32")
	}
	ints := RawTensor{DType: "I32", Data: le.AppendUint32(nil, 7)}
	if got, err := ints.Int32s(); err != nil || fmt.Sprint(got) != "[7]" {
		t.Errorf("ints %v, %v", got, err)
	}
	if _, err := ints.Float32s(); err == nil {
		t.Error("I32 read as floats")
	}
}

// entry is one F32 tensor of the header.
func entry(name, shape string, begin, end int) string {
	return fmt.Sprintf(`%q:{"dtype":"F32","shape":%s,"data_offsets":[%d,%d]}`, name, shape, begin, end)
}

var badSafetensors = []struct {
	name string
	data []byte
	want string
}{
	{"empty", nil, "file of 0 bytes"},
	{"short", []byte{1, 2, 3}, "file of 3 bytes"},
	{"header past the end", binary.LittleEndian.AppendUint64(nil, 100), "header length 100: only 0 bytes follow"},
	{"absurd header", binary.LittleEndian.AppendUint64(nil, math.MaxUint64), "header length 18446744073709551615: want at most 100000000"},
	{"no header", rawSafetensors("", 0), "want a JSON object"},
	{"a list", rawSafetensors("[]", 0), "want a JSON object"},
	{"cut JSON", rawSafetensors(`{"a":{"dtype":`, 0), "unexpected EOF"},
	{"text after it", rawSafetensors(`{}{}`, 0), "want nothing after"},
	{"deep", rawSafetensors(`{"a":`+strings.Repeat("[", 1<<20), 0), "found [, want an object"},
	{"deep shape", rawSafetensors(`{"a":{"dtype":"F32","shape":`+strings.Repeat("[", 1<<20), 0), "want a whole number"},
	{"long shape", rawSafetensors(`{"a":{"dtype":"F32","shape":[`+strings.Repeat("1,", 100)+`1],"data_offsets":[0,4]}}`, 4), "at most 16 numbers"},
	{"unknown dtype", rawSafetensors(`{"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}`, 4), `dtype "F31"`},
	{"unknown field", rawSafetensors(`{"a":{"dtype":"F32","size":[1],"data_offsets":[0,4]}}`, 4), `unknown field "size"`},
	{"missing field", rawSafetensors(`{"a":{"dtype":"F32","shape":[1]}}`, 4), "want dtype, shape and data_offsets"},
	{"null dtype", rawSafetensors(`{"a":{"dtype":null,"shape":[1],"data_offsets":[0,4]}}`, 4), "want a string"},
	{"metadata of numbers", rawSafetensors(`{"__metadata__":{"a":1}}`, 0), "want a string"},
	{"negative shape", rawSafetensors(`{`+entry("a", "[-1]", 0, 4)+`}`, 4), "found -1"},
	{"fraction", rawSafetensors(`{`+entry("a", "[1.5]", 0, 4)+`}`, 4), "found 1.5"},
	{"overflow", rawSafetensors(`{`+entry("a", "[4294967296,4294967296]", 0, 0)+`}`, 0), "too large to address"},
	{"half a byte", rawSafetensors(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, 2), "want whole bytes"},
	{"one offset", rawSafetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}`, 4), "found 1 numbers, want 2"},
	{"backward", rawSafetensors(`{`+entry("a", "[1]", 4, 0)+`}`, 4), "want an ascending range"},
	{"past the data", rawSafetensors(`{`+entry("a", "[2]", 0, 8)+`}`, 4), "within the 4 bytes of data"},
	{"lying shape", rawSafetensors(`{`+entry("a", "[2]", 0, 4)+`}`, 4), "4 bytes of data: shape [2] of F32 takes 8"},
	{"duplicate", rawSafetensors(`{`+entry("a", "[1]", 0, 4)+`,`+entry("a", "[1]", 4, 8)+`}`, 8), `"a" stands twice`},
	{"overlap", rawSafetensors(`{`+entry("a", "[2]", 0, 8)+`,`+entry("b", "[2]", 4, 12)+`}`, 12), `starts at byte 4 inside "a"`},
	{"the same bytes twice", rawSafetensors(`{`+entry("a", "[1]", 0, 4)+`,`+entry("b", "[1]", 0, 4)+`}`, 4), `inside "a"`},
	{"hole", rawSafetensors(`{`+entry("a", "[1]", 0, 4)+`,`+entry("b", "[1]", 8, 12)+`}`, 12), "leaves a hole from 4"},
	{"left over", rawSafetensors(`{`+entry("a", "[1]", 0, 4)+`}`, 5), "end at byte 4 of 5"},
}

func TestReadSafetensorsRefuses(t *testing.T) {
	for _, tc := range badSafetensors {
		_, err := ReadSafetensors(tc.data)
		testhelp.OneLine(t, tc.name, err, tc.want)
	}
}

func TestWriteSafetensors(t *testing.T) {
	tensors := []RawTensor{
		{Name: "z<&>\"é", DType: "F32", Shape: []int{2, 1}, Data: []byte("12345678")},
		{Name: "scalar", DType: "I64", Shape: []int{}, Data: []byte("abcdefgh")},
		{Name: "none", DType: "F16", Shape: []int{0}, Data: []byte{}},
		{Name: "a", DType: "BF16", Shape: []int{3}, Data: []byte("uvwxyz")},
	}
	metadata := map[string]string{"format": "pt", "b": "2", "a": "1"}
	data := writeSafetensors(t, metadata, tensors)
	if n := binary.LittleEndian.Uint64(data); n%8 != 0 {
		t.Errorf("header of %d bytes: want a multiple of 8", n)
	}
	s, err := ReadSafetensors(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s.Tensors, tensors) || !reflect.DeepEqual(s.Metadata, metadata) {
		t.Errorf("read back %+v %v", s.Tensors, s.Metadata)
	}
	if again := writeSafetensors(t, s.Metadata, s.Tensors); !bytes.Equal(again, data) {
		t.Error("writing what was read gives other bytes")
	}
	for _, tc := range []struct {
		tensors []RawTensor
		want    string
	}{
		{[]RawTensor{{Name: "a", DType: "F32", Shape: []int{2}, Data: make([]byte, 4)}}, "takes 8"},
		{[]RawTensor{{Name: "a", DType: "F33", Shape: []int{2}}}, "dtype"},
		{[]RawTensor{{Name: "a", DType: "F32", Shape: []int{-1}}}, "no negative"},
		{[]RawTensor{{Name: "__metadata__", DType: "F32", Shape: []int{0}}}, "want each name once"},
		{[]RawTensor{{Name: "a", DType: "F32", Shape: []int{0}}, {Name: "a", DType: "F32", Shape: []int{0}}}, "want each name once"},
	} {
		testhelp.OneLine(t, "write", WriteSafetensors(&bytes.Buffer{}, nil, tc.tensors), tc.want)
	}
}

// FuzzSafetensors: whatever is read covers the body without overlap, and is
// read back the same after writing.
func FuzzSafetensors(f *testing.F) {
	for _, tc := range badSafetensors {
		if len(tc.data) < 1<<12 { // long seeds slow the fuzzer down
			f.Add(tc.data)
		}
	}
	f.Add(safetensorsFile(f, "a", "b"))
	f.Add(rawSafetensors(`{"__metadata__":{"x":"y"},"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]},`+
		`"e":{"dtype":"F32","shape":[0],"data_offsets":[2,2]}}`, 2))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ReadSafetensors(data)
		if err != nil {
			return
		}
		total := 0
		for _, tensor := range s.Tensors {
			total += len(tensor.Data)
		}
		if header := int(binary.LittleEndian.Uint64(data)); total != len(data)-8-header {
			t.Fatalf("tensors hold %d bytes of %d", total, len(data)-8-header)
		}
		written := writeSafetensors(t, s.Metadata, s.Tensors)
		again, err := ReadSafetensors(written)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again.Tensors, s.Tensors) {
			t.Fatalf("read back %+v, want %+v", again.Tensors, s.Tensors)
		}
		if !bytes.Equal(writeSafetensors(t, again.Metadata, again.Tensors), written) {
			t.Fatal("a second writing gives other bytes")
		}
	})
}

var badIndexes = []struct{ name, text, want string }{
	{"empty", ``, "unexpected EOF"},
	{"a list", `[]`, "want an object"},
	{"no map", `{"metadata": {}}`, "weight_map: missing or empty"},
	{"an empty map", `{"weight_map": {}}`, "weight_map: missing or empty"},
	{"a list for a map", `{"weight_map": []}`, "want an object"},
	{"a number for a file", `{"weight_map": {"a": 1}}`, "want a string"},
	{"a parent", `{"weight_map": {"a": "../x.safetensors"}}`, "want a plain name"},
	{"dots", `{"weight_map": {"a": ".."}}`, "want a plain name"},
	{"absolute", `{"weight_map": {"a": "/x.safetensors"}}`, "want a plain name"},
	{"a drive", `{"weight_map": {"a": "C:x.safetensors"}}`, "want a plain name"},
	{"a backslash", `{"weight_map": {"a": "..\\x.safetensors"}}`, "want a plain name"},
	{"a nul", `{"weight_map": {"a": "x\u0000.safetensors"}}`, "want a plain name"},
	{"another file", `{"weight_map": {"a": "pytorch_model.bin"}}`, "want the name of a .safetensors file"},
	{"a tensor twice", `{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}`, "stands twice"},
	{"text after it", `{"weight_map": {"a": "x.safetensors"}} 1`, "want nothing after"},
	{"deep", `{"metadata": ` + strings.Repeat("[", 20000), "depth"},
}

func TestParseIndexRefuses(t *testing.T) {
	for _, tc := range badIndexes {
		_, err := ParseIndex([]byte(tc.text))
		testhelp.OneLine(t, tc.name, err, tc.want)
	}
}

// FuzzIndex: no file name that is accepted leaves the folder.
func FuzzIndex(f *testing.F) {
	for _, tc := range badIndexes {
		if len(tc.text) < 1<<12 { // long seeds slow the fuzzer down
			f.Add([]byte(tc.text))
		}
	}
	f.Add([]byte(`{"metadata": {"total_size": 4}, "weight_map": {"a": "x.safetensors"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		weightMap, err := ParseIndex(data)
		if err != nil {
			return
		}
		for tensor, file := range weightMap {
			if strings.ContainsAny(file, "/\\:\x00") || !strings.HasSuffix(file, ".safetensors") {
				t.Fatalf("%q lies in %q", tensor, file)
			}
		}
	})
}
