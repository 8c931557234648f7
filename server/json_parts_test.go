package server

import (
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// FuzzParts: what is cut from valid JSON is what encoding/json finds in it.
func FuzzParts(f *testing.F) {
	for _, s := range []string{`[]`, ` [ 1 , "a,]\"" ,{"b":[2,{}]} ] `, `{}`, ` { "a" : 1 , "b\u00e4\\" : "x\\\"}" , "a":[null,true] } `, `"[1,2]"`, `17`, `null`, `[[[]],[{"a":"\\"}]]`, `{"":"","x":{"y":-1.5e3}}`, `["\\","\\\\\""]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) || !utf8.Valid(data) { // a body is checked for both
			items(data) // of what is not valid, it matters only that they end
			members(data)
			return
		}
		var list []json.RawMessage
		want := json.Unmarshal(data, &list) == nil && list != nil
		if got, ok := items(data); ok != want || ok && !same(list, got) {
			t.Errorf("%s: items %s %t, want %s %t", data, got, ok, list, want)
		}
		var all map[string]json.RawMessage
		want = json.Unmarshal(data, &all) == nil && all != nil
		if got, ok := members(data); ok != want || ok && !reflect.DeepEqual(got, all) {
			t.Errorf("%s: members %s %t, want %s %t", data, got, ok, all, want)
		}
	})
}

func same(a, b []json.RawMessage) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if string(a[i]) != string(b[i]) {
			return false
		}
	}
	return true
}
