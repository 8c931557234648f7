package schedule

import (
	"reflect"
	"testing"
)

// TestCountersPlus: no counter is left out of a sum.
func TestCountersPlus(t *testing.T) {
	var a, b Counters
	n := 0
	eachNumber("", reflect.ValueOf(&a).Elem(), func(_ string, v reflect.Value) { n++; setNumber(v, n) })
	eachNumber("", reflect.ValueOf(&b).Elem(), func(_ string, v reflect.Value) { setNumber(v, 100) })
	sum := a.Plus(b)
	n = 0
	eachNumber("", reflect.ValueOf(&sum).Elem(), func(name string, v reflect.Value) {
		n++
		want := reflect.New(v.Type()).Elem()
		if setNumber(want, n+100); !v.Equal(want) {
			t.Errorf("%s is %v", name, v)
		}
	})
}

// eachNumber calls f with every number in a value.
func eachNumber(name string, v reflect.Value, f func(name string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			eachNumber(name+"."+v.Type().Field(i).Name, v.Field(i), f)
		}
	case reflect.Array:
		for i := range v.Len() {
			eachNumber(name+"[]", v.Index(i), f)
		}
	default:
		f(name, v)
	}
}

func setNumber(v reflect.Value, n int) {
	if v.CanInt() {
		v.SetInt(int64(n))
	} else {
		v.SetFloat(float64(n))
	}
}
