package answer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// tool is a function that the request offers.
type tool struct {
	name       string
	parameters *schema
}

// parseTools reads a request's tools. Those that are no functions are skipped.
func parseTools(raw json.RawMessage) ([]tool, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var list []struct {
		Function *struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf(`tools: %w; want [{"type": "function", "function": {"name": …, "parameters": SCHEMA}}]`, err)
	}
	var tools []tool
	for _, t := range list {
		if t.Function == nil {
			continue
		}
		var root any
		if len(t.Function.Parameters) > 0 {
			if err := json.Unmarshal(t.Function.Parameters, &root); err != nil {
				return nil, fmt.Errorf("tools: parameters of %q: %w", t.Function.Name, err)
			}
		}
		tools = append(tools, tool{t.Function.Name, newSchema(root)})
	}
	return tools, nil
}

// schema is a tool's parameters, as far as their types go.
type schema struct {
	names      []string // sorted
	properties map[string]types
}

// types is a set of JSON's types. None: nothing is known.
type types uint8

const (
	typeString types = 1 << iota
	typeNumber       // and integer
	typeBoolean
	typeObject
	typeArray
	typeNull
)

func newSchema(root any) *schema {
	s := &schema{properties: map[string]types{}}
	object, _ := root.(map[string]any)
	properties, _ := object["properties"].(map[string]any)
	for name, p := range properties {
		s.names = append(s.names, name)
		s.properties[name] = typesOf(root, p, 0)
	}
	slices.Sort(s.names)
	return s
}

// property returns the types that the parameter may have.
func (s *schema) property(name string) types {
	if s == nil {
		return 0
	}
	return s.properties[name]
}

// keys lists the parameters.
func (s *schema) keys() []string {
	if s == nil {
		return nil
	}
	return s.names
}

// maxRefs bounds how deep schemas refer to others, which may be themselves.
const maxRefs = 8

// typesOf returns the types that values of a JSON schema may have, of what says
// so: type, enum, const, anyOf, oneOf, allOf, a local $ref, and keywords that
// only objects or arrays have.
func typesOf(root, s any, depth int) (t types) {
	m, ok := s.(map[string]any)
	if !ok || depth > maxRefs {
		return 0
	}
	switch given := m["type"].(type) {
	case string:
		t = typeOf(given)
	case []any:
		for _, g := range given {
			name, _ := g.(string)
			t |= typeOf(name)
		}
	}
	if t != 0 {
		return t
	}
	if c, ok := m["const"]; ok {
		return typeOfValue(c)
	}
	if values, ok := m["enum"].([]any); ok {
		for _, v := range values {
			t |= typeOfValue(v)
		}
		return t
	}
	if ref, ok := m["$ref"].(string); ok {
		return typesOf(root, resolve(root, ref), depth+1)
	}
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		branches, _ := m[word].([]any)
		for _, b := range branches {
			t |= typesOf(root, b, depth+1)
		}
	}
	if t != 0 {
		return t
	}
	if _, ok := m["properties"]; ok {
		return typeObject
	}
	if _, ok := m["items"]; ok {
		return typeArray
	}
	return 0
}

// typeOf returns the type of that name. Programs that make schemas out of
// Python's or C's types have other names for some.
func typeOf(name string) types {
	name = strings.ToLower(strings.Trim(name, space))
	switch {
	case name == "null":
		return typeNull
	case name == "boolean", name == "bool":
		return typeBoolean
	case name == "object", strings.HasPrefix(name, "dict"):
		return typeObject
	case name == "array", strings.HasPrefix(name, "list"):
		return typeArray
	}
	for _, prefix := range []string{"int", "uint", "long", "short", "unsigned", "num", "float", "double"} {
		if strings.HasPrefix(name, prefix) {
			return typeNumber
		}
	}
	if name == "" {
		return 0
	}
	return typeString
}

func typeOfValue(v any) types {
	switch v.(type) {
	case nil:
		return typeNull
	case bool:
		return typeBoolean
	case float64:
		return typeNumber
	case map[string]any:
		return typeObject
	case []any:
		return typeArray
	}
	return typeString
}

// resolve follows a reference such as "#/$defs/Point" (RFC 6901) inside root.
// Any other is nil.
func resolve(root any, ref string) any {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if part == "" {
			continue
		}
		m, _ := root.(map[string]any)
		root = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return root
}
