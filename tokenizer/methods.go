package tokenizer

import (
	"errors"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// Where gonja 2.9.1 differs from Python in what chat templates use: the first
// item of a list counted from its end, str.replace without a count, and
// methods of dictionaries, which forget the order of keys.

// list is a list of which every item can be counted from the end too: gonja
// finds nothing at [-n] of a list of n, such as messages[-1] of one message.
type list []any

// GetItem implements exec.ItemGetter.
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if i < 0 {
		i += len(l)
	}
	if !ok || i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.AsValue(l[i]), true
}

func copyMethods[I any](from *exec.MethodSet[I], names ...string) map[string]exec.Method[I] {
	methods := make(map[string]exec.Method[I])
	for _, name := range names {
		if m, ok := from.Get(name); ok {
			methods[name] = m
		}
	}
	return methods
}

// templateMethods are gonja's methods with those above put right. encode,
// format_map and others of no use to a prompt are left out.
func templateMethods() exec.Methods {
	methods := builtins.Methods
	text := copyMethods(methods.Str, "capitalize", "casefold", "count", "endswith", "find", "format", "isalnum", "isalpha",
		"isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip", "partition", "removeprefix",
		"removesuffix", "rfind", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper")
	for _, name := range []string{"split", "rsplit", "splitlines"} {
		text[name] = asList(text[name])
	}
	text["replace"] = replaceMethod
	methods.Str = exec.NewMethodSet(text)

	dict := copyMethods(methods.Dict, "copy")
	dict["get"] = getMethod
	dict["keys"] = pairsMethod(func(p *exec.Pair) any { return p.Key })
	dict["values"] = pairsMethod(func(p *exec.Pair) any { return p.Value })
	dict["items"] = pairsMethod(func(p *exec.Pair) any { return list{p.Key, p.Value} })
	methods.Dict = exec.NewMethodSet(dict)
	return methods
}

// asList makes a method that returns strings return a list.
func asList(method exec.Method[string]) exec.Method[string] {
	return func(self string, value *exec.Value, arguments *exec.VarArgs) (any, error) {
		result, err := method(self, value, arguments)
		parts, ok := result.([]string)
		if err != nil || !ok {
			return result, err
		}
		l := make(list, len(parts))
		for i, p := range parts {
			l[i] = p
		}
		return l, nil
	}
}

func replaceMethod(self string, _ *exec.Value, arguments *exec.VarArgs) (any, error) {
	count := -1
	a := arguments.Args
	if len(a) == 3 && a[2].IsInteger() {
		count = a[2].Integer()
	} else if len(a) != 2 {
		return nil, errors.New("replace() wants two strings and perhaps a count")
	}
	old, replacement := a[0].String(), a[1].String()
	if n := strings.Count(self, old); n > 0 && n*len(replacement) > templateOutput {
		return nil, errors.New("replace() makes too long a string")
	}
	return strings.Replace(self, old, replacement, count), nil
}

// dictOf returns the pairs of a dictionary in order.
func dictOf(value *exec.Value, self map[string]any) *exec.Dict {
	switch d := value.Interface().(type) {
	case *exec.Dict:
		return d
	case exec.Dict:
		return &d
	}
	d := exec.NewDict()
	for _, key := range sortedKeys(self) {
		d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(key), Value: exec.AsValue(self[key])})
	}
	return d
}

func pairsMethod(part func(*exec.Pair) any) exec.Method[map[string]any] {
	return func(self map[string]any, value *exec.Value, _ *exec.VarArgs) (any, error) {
		parts := list{}
		for _, p := range dictOf(value, self).Pairs {
			parts = append(parts, part(p))
		}
		return parts, nil
	}
}

func getMethod(self map[string]any, value *exec.Value, arguments *exec.VarArgs) (any, error) {
	a := arguments.Args
	if len(a) < 1 || len(a) > 2 {
		return nil, errors.New("get() wants a key and perhaps a default")
	}
	for _, p := range dictOf(value, self).Pairs {
		if p.Key.EqualValueTo(a[0]) {
			return p.Value.Interface(), nil
		}
	}
	if len(a) == 2 {
		return a[1].Interface(), nil
	}
	return nil, nil
}
