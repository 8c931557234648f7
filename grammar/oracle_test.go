package grammar

import (
	"encoding/json"
	"math/big"
	"net/mail"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The oracle reads schemas and values with encoding/json and checks them
// keyword by keyword: nothing in it is shared with the package, nor made for
// speed.

type oracle struct{ root any }

func newOracle(schema string) *oracle { return &oracle{decode(schema)} }

func decode(text string) (v any) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic(err)
	}
	return v
}

// valid reports whether a text is JSON that satisfies the schema.
func (o *oracle) valid(text string) bool {
	return utf8.ValidString(text) && json.Valid([]byte(text)) && o.check(o.root, decode(text))
}

func (o *oracle) ref(name string) any {
	v := o.root
	for _, step := range strings.Split(name, "/")[1:] {
		v = v.(map[string]any)[step]
	}
	return v
}

func rational(n any) *big.Rat {
	r, ok := new(big.Rat).SetString(string(n.(json.Number)))
	if !ok {
		panic(n)
	}
	return r
}

func equal(a, b any) bool {
	x, ok1 := a.(json.Number)
	y, ok2 := b.(json.Number)
	if ok1 && ok2 {
		return rational(x).Cmp(rational(y)) == 0
	}
	return reflect.DeepEqual(a, b)
}

func typeOf(v any) string {
	switch n := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case json.Number:
		if !strings.ContainsAny(string(n), "eE") && rational(n).IsInt() {
			return "integer"
		}
	}
	return "number"
}

func (o *oracle) check(schema, v any) bool {
	if b, ok := schema.(bool); ok {
		return b
	}
	s := schema.(map[string]any)
	number := func(key string) int { n, _ := strconv.Atoi(string(s[key].(json.Number))); return n }
	for key, want := range s {
		ok := true
		switch key {
		case "type":
			list, isList := want.([]any)
			if !isList {
				list = []any{want}
			}
			ok = false
			for _, t := range list {
				ok = ok || t == typeOf(v) || t == "number" && typeOf(v) == "integer"
			}
		case "enum":
			ok = false
			for _, e := range want.([]any) {
				ok = ok || equal(e, v)
			}
		case "const":
			ok = equal(want, v)
		case "$ref":
			ok = o.check(o.ref(want.(string)), v)
		case "allOf", "anyOf", "oneOf":
			n := 0
			for _, sub := range want.([]any) {
				if o.check(sub, v) {
					n++
				}
			}
			ok = key == "allOf" && n == len(want.([]any)) || key == "anyOf" && n > 0 || key == "oneOf" && n == 1
		}
		switch v := v.(type) {
		case string:
			switch key {
			case "minLength":
				ok = utf8.RuneCountInString(v) >= number(key)
			case "maxLength":
				ok = utf8.RuneCountInString(v) <= number(key)
			case "pattern":
				ok = regexp.MustCompile(want.(string)).MatchString(v)
			case "format":
				ok = checkFormat(want.(string), v)
			}
		case json.Number:
			if strings.Contains(key, "imum") {
				c := rational(v).Cmp(rational(want))
				ok = c == 0 && !strings.HasPrefix(key, "ex") || c > 0 && strings.HasSuffix(key, "inimum") || c < 0 && strings.HasSuffix(key, "aximum")
			}
		case []any:
			prefix, _ := s["prefixItems"].([]any)
			switch key {
			case "minItems":
				ok = len(v) >= number(key)
			case "maxItems":
				ok = len(v) <= number(key)
			case "prefixItems":
				for i := 0; i < min(len(v), len(prefix)); i++ {
					ok = ok && o.check(prefix[i], v[i])
				}
			case "items":
				for i := len(prefix); i < len(v); i++ {
					ok = ok && o.check(want, v[i])
				}
			}
		case map[string]any:
			properties, _ := s["properties"].(map[string]any)
			patterns, _ := s["patternProperties"].(map[string]any)
			switch key {
			case "required":
				for _, name := range want.([]any) {
					_, has := v[name.(string)]
					ok = ok && has
				}
			case "properties":
				for name, sub := range properties {
					if item, has := v[name]; has {
						ok = ok && o.check(sub, item)
					}
				}
			case "patternProperties":
				for expr, sub := range patterns {
					for name, item := range v {
						ok = ok && (!regexp.MustCompile(expr).MatchString(name) || o.check(sub, item))
					}
				}
			case "additionalProperties":
				for name, item := range v {
					_, named := properties[name]
					for expr := range patterns {
						named = named || regexp.MustCompile(expr).MatchString(name)
					}
					ok = ok && (named || o.check(want, item))
				}
			}
		}
		if !ok {
			return false
		}
	}
	return true
}

func checkFormat(format, s string) (ok bool) {
	var err error
	switch format {
	case "date":
		_, err = time.Parse("2006-01-02", s)
	case "time":
		_, err = time.Parse("15:04:05Z07:00", s)
	case "date-time":
		_, err = time.Parse(time.RFC3339, s)
	case "ipv4", "ipv6":
		var a netip.Addr
		a, err = netip.ParseAddr(s)
		ok = err == nil && a.Is4() == (format == "ipv4") && a.Zone() == ""
		return ok
	case "email":
		var a *mail.Address
		a, err = mail.ParseAddress(s)
		return err == nil && a.Address == s
	case "uri":
		var u *url.URL
		u, err = url.Parse(s)
		return err == nil && u.IsAbs()
	case "hostname":
		return len(s) <= 253 && regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`).MatchString(s)
	case "uuid":
		return regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`).MatchString(s)
	case "duration":
		return len(s) > 1 && regexp.MustCompile(`^P(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?$|^P\d+W$`).MatchString(s) && !strings.HasSuffix(s, "T")
	default:
		panic(format)
	}
	return err == nil
}
