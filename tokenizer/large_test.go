package tokenizer

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// plainFiles are cut; the others are left to the decoder.
var plainFiles = []string{
	`{"model":{"vocab":{"a":0,"b":1},"merges":[["a","b"],["b","a"]]}}`,
	"{ \"version\" : \"1.0\",\n\t\"added_tokens\": [{\"id\": 3, \"content\": \"<|}{[]\\\"|>\"}], \"model\" : { \"type\": \"BPE\", \"merges\" : [ \"a b\" , \"b c\" ] ,\r\n \"vocab\" : { \"a\" : 0 , \"\\u0022\" : 12 , \"\\\\\" : 13 } , \"dropout\": null } , \"decoder\": {\"type\": \"ByteLevel\"}}",
	`{"model":{"vocab":{"a":0},"merges":["\" >","\\ n","a \u003c","\u00e9\t \"\"","x y"]}}`,
	`{"normalizer":null,"model":{"unk_token":"x","vocab":{"Ġthe":4294967295,"日本":9}}}`,
	`{"model":{"vocab":{"a":0,"a":0},"merges":[[" ",""]],"byte_fallback":true,"ignore_merges":false},"x":[[{"y":"]"}],-1.5e3,true]}`,
}

var otherFiles = []string{
	``, `null`, `[]`, `{}`, `{"model":null}`, `{"model":{}}`, `{"model":{"vocab":{}}}`, `{"model":{"vocab":null,"merges":null}}`,
	`{"model":{"vocab":{"a":0},"merges":[]}}`, `{"model":{"vocab":{"a":0},"merges":[["a"]]}}`, `{"model":{"vocab":{"a":0},"merges":["ab"]}}`,
	`{"model":{"vocab":{"a":0},"merges":["a b c"]}}`, `{"model":{"vocab":{"a":0},"merges":["a\u0020b"]}}`, `{"model":{"vocab":{"a":0},"merges":["a\u0020 b"]}}`, `{"model":{"vocab":{"a":0},"merges":["a \q"]}}`, `{"model":{"vocab":{"a":0},"merges":[["a","b","c"]]}}`,
	`{"model":{"vocab":{"a":-1}}}`, `{"model":{"vocab":{"a":01}}}`, `{"model":{"vocab":{"a":1.0}}}`, `{"model":{"vocab":{"a":1e2}}}`, `{"model":{"vocab":{"a":12345678901}}}`,
	`{"model":{"vocab":{"a":0},"vocab":{"b":1}}}`, `{"model":{"vocab":{"a":0},"Vocab":{"b":1}}}`, `{"model":{"vocab":{"a":0},"mergeſ":[["a","b"]]}}`,
	`{"model":{"vocab":{"a":0}},"model":{"type":"x"}}`, `{"model":{"vocab":{"a":0}},"MODEL":{"vocab":null}}`, `{"mod\u0065l":{"vocab":{"a":0}}}`,
	`{"model":{"vocab":{"a":0},}}`, `{"model":{"vocab":{"a":0,}}}`, `{"model":{"vocab":{"a":0}}} x`, `{"model":{"vocab":{"a":0}}`, `{"model":{"vocab":{"a":0},"type":7}}`,
	`{"model":{"vocab":{"a":0},"type":}}`, `{"model":{"vocab":{"a":0},"type":[}}`, "{\"model\":{\"vocab\":{\"a\n\":0}}}", `{"model":{"vocab":{"\q":0}}}`, `{"model":{"vocab":{"a`, `{"model":{"vocab":{"a\`,
	`{"model":{"vocab":{"a":0},"dropout":nul}}`, `{"added_tokens":{},"model":{"vocab":{"a":0}}}`,
}

// asDecoded compares decodeFile with encoding/json alone.
func asDecoded(data []byte) error {
	var want fileJSON
	wantErr := json.Unmarshal(data, &want)
	got, err := decodeFile(data)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		return fmt.Errorf("error %v, want %v", err, wantErr)
	}
	if err != nil {
		return nil
	}
	for _, f := range []*fileJSON{&got, &want} { // as is no list and an empty one
		if m := f.Model; m != nil {
			m.Vocab.tokens, m.Merges.parts = append([]string{}, m.Vocab.tokens...), append([]string{}, m.Merges.parts...)
			m.Vocab.ids = append([]int64{}, m.Vocab.ids...)
		}
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("got %+v (model %+v), want %+v (model %+v)", got, got.Model, want, want.Model)
	}
	return nil
}

func TestCutLarge(t *testing.T) {
	for i, files := range [][]string{otherFiles, plainFiles} {
		for _, text := range files {
			x, ok := cutLarge([]byte(text))
			if ok && json.Unmarshal(x.rest, new(fileJSON)) != nil {
				ok = false
			}
			if ok != (i == 1) {
				t.Errorf("%s: cut: %v", text, ok)
			}
			if err := asDecoded([]byte(text)); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// FuzzCutLarge: whatever the file, it is decoded as encoding/json does.
func FuzzCutLarge(f *testing.F) {
	for _, text := range append(plainFiles, otherFiles...) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) {
			return // parse refuses it
		}
		if err := asDecoded(data); err != nil {
			t.Error(err)
		}
	})
}

// TestMergeFaults: the first merge that is at fault is named, however many look for it, and what
// merges make is found in whatever order ids are.
func TestMergeFaults(t *testing.T) {
	const words = 5000
	file := func(order func(i int) int, faults ...int) error {
		var vocab, merges strings.Builder
		id := 0
		for _, r := range byteRune {
			fmt.Fprintf(&vocab, "%q:%d,", string(r), id)
			id++
		}
		for i := range words {
			fmt.Fprintf(&vocab, "\"%s\":%d,", word(i), id+order(i))
			left, right := word(i)[:1], word(i)[1:]
			for _, fault := range faults {
				if i == fault {
					left = "?" + left
				}
			}
			fmt.Fprintf(&merges, "[%q,%q],", left, right)
		}
		for i := range 1000 { // what they are made of
			fmt.Fprintf(&vocab, "\"%03d\":%d,", i, id+words+i)
		}
		text := fmt.Sprintf(`{"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},"model":{"vocab":{%s},"merges":[%s]}}`, strings.TrimSuffix(vocab.String(), ","), strings.TrimSuffix(merges.String(), ","))
		k, err := New([]byte(text), nil)
		for i := 0; err == nil && i < words; i++ {
			a, b := k.ids[word(i)[:1]], k.ids[word(i)[1:]]
			if got := k.bpe.merges[pairKey(a, b)]; got != (merge{int32(i), k.ids[word(i)]}) {
				err = fmt.Errorf("merge %d is %+v", i, got)
			}
		}
		return err
	}
	for _, order := range []func(int) int{func(i int) int { return i }, func(i int) int { return words - 1 - i }} {
		if err := file(order); err != nil {
			t.Error(err)
		}
	}
	if err := file(func(i int) int { return i }, 4800, 2600, 2610); err == nil || !strings.Contains(err.Error(), "model.merges[2600] names") {
		t.Errorf("error %v", err)
	}
}

// word is one of a letter and three digits.
func word(i int) string { return fmt.Sprintf("%c%03d", 'a'+i/1000, i%1000) }
