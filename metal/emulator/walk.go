package emulator

import (
	"fmt"
	"strings"
)

// walk goes over the tokens and notes the edits.
func (r *rewriter) walk() {
	depth, begins := 0, true // begins: a statement does
	for i := 0; i < len(r.tokens); i++ {
		t := r.at(i)
		first := begins
		begins = t == ";" || t == "{" || t == "}"
		if r.lint && assumed[t] {
			r.fault(i, "%s: fast math assumes that there are no infinities and NaNs", t)
		}
		if r.lint && t == "thread_elements" {
			r.fault(i, "%s: which lane holds which element is not documented", t)
		}
		switch {
		case t == "{":
			depth++
		case t == "}":
			depth--
		case t == "template" && first && r.at(i+1) != "<":
			i = r.instantiation(i)
			begins = true
		case t == "alignas" && first && r.at(i+1) == "(":
			if c := r.closing(i + 1); c > 0 && r.at(c+1) == "threadgroup" {
				i = r.variable(i, c+1, r.text(i+2, c), depth)
				begins = r.at(i) == ";"
			}
		case t == "threadgroup" && first:
			i = r.variable(i, i, "", depth)
			begins = r.at(i) == ";"
		case t == "[[":
			if c := r.closing(i); c > 0 {
				if r.at(i+1) == "function_constant" {
					r.fault(i, "function constants are not emulated")
				}
				r.replace(i, c+1, "")
				i = c
				begins = first
			}
		case t == "kernel" && depth > 0 && r.at(i-1) != "[[":
			r.fault(i, "a kernel inside of something else")
		case t == "(":
			r.castOf(i)
		case t == "static_cast" && r.at(i+1) == "<" && r.typeEnd(i+2) > 0 && r.at(r.typeEnd(i+2)) == ">":
			r.replace(i, i+1, "::msl::mk")
		case plainFloat.MatchString(t):
			r.insert(r.tokens[i].end, "f") // Metal has no double
		default:
			r.constructor(i)
		}
	}
}

// typeEnd returns the token after a type at i that may be a vector or a 16-bit
// float, or -1 for anything else.
func (r *rewriter) typeEnd(i int) int {
	t := r.at(i)
	if t == "metal" && r.at(i+1) == "::" {
		return r.typeEnd(i + 2)
	}
	if t == "vec" && r.at(i+1) == "<" {
		if c := r.closingAngle(i + 1); c > 0 {
			return c + 1
		}
		return -1
	}
	if vectorName.MatchString(t) || r.types[t] || t == "half" || t == "bfloat" {
		return i + 1
	}
	return -1
}

// constructor makes a function of V(...) at i.
func (r *rewriter) constructor(i int) {
	end := r.typeEnd(i)
	if end < 0 || r.at(end) != "(" || r.at(i-1) == "::" && r.at(i-2) != "metal" || r.at(i-1) == "." || r.at(i-1) == "->" {
		return
	}
	if r.at(i-1) == "::" {
		return // of metal::vec, which the token metal has begun
	}
	if next := r.at(end + 1); (next == "*" || next == "&") && r.at(end+2) != "(" && r.at(i-1) != "=" && r.at(i-1) != "return" && r.at(i-1) != "(" && r.at(i-1) != "," {
		return // a pointer or reference to an array
	}
	// T name(...) declares a function; so does T* name(...) where name is a type's.
	if r.name(i-1) && r.at(i-1) != "return" && r.at(i-1) != "else" && r.at(i-1) != "case" || r.at(i-1) == ">" && r.types[r.at(i)] {
		return
	}
	r.insert(r.tokens[i].begin, "::msl::mk<")
	r.insert(r.tokens[end-1].end, ">")
}

// castOf makes a function of (V)x: it converts each element, where clang would
// look at the bits as another type.
func (r *rewriter) castOf(i int) {
	end := r.typeEnd(i + 1)
	if end < 0 || r.at(end) != ")" {
		return
	}
	if before := r.at(i - 1); r.name(i-1) && before != "return" || before == ">" || before == ")" || before == "]" {
		return // an argument
	}
	operand := r.at(end + 1)
	if operand == "" || !word(operand[0]) && !strings.Contains("(-*~!.", operand[:1]) {
		return
	}
	r.replace(i, i+1, "::msl::cast<")
	r.replace(end, end+1, ">{}->*")
}

// instantiation reads template ... NAME<...>(...); from i on, and returns its
// last token.
func (r *rewriter) instantiation(i int) int {
	end := i
	for end < len(r.tokens) && r.at(end) != ";" {
		if r.at(end) == "{" {
			return i
		}
		end++
	}
	if end == len(r.tokens) {
		r.fault(i, "an instantiation does not end")
		return end
	}
	host := ""
	var of *function
	expression := ""
	for j := i; j < end; j++ {
		if r.at(j) == "host_name" && r.at(j+1) == "(" {
			for k := j + 2; k < end && r.at(k) != ")"; k++ {
				host += strings.Trim(r.at(k), `"`)
			}
		}
		if f := r.kernels[r.at(j)]; f != nil && r.at(j+1) == "<" {
			if c := r.closingAngle(j + 1); c > 0 && c < end {
				of, expression = f, r.text(j, c+1)
			}
		}
	}
	if of == nil {
		return end
	}
	if host == "" {
		r.fault(i, "an instantiation of kernel %s has no host_name", of.name)
	}
	r.instances = append(r.instances, instance{host, expression, of})
	r.replace(i, end+1, "")
	return end
}

// variable reads a declaration of threadgroup variables, whose first token is
// at and whose threadgroup is at i, and returns its last token. A pointer to
// threadgroup memory is left alone.
func (r *rewriter) variable(at, i int, alignment string, depth int) int {
	end := i + 1
	for end < len(r.tokens) && r.at(end) != ";" && r.at(end) != "=" {
		switch r.at(end) {
		case "*", "&", "(", "{", "}", ")":
			return i // a pointer, a parameter, a function
		case "[", "[[":
			if end = r.closing(end); end < 0 {
				return i
			}
		case "<":
			if c := r.closingAngle(end); c > 0 {
				end = c
			}
		}
		end++
	}
	if end >= len(r.tokens) {
		return i
	}
	inKernel := false
	for _, f := range r.order {
		inKernel = inKernel || f.body < i && i < f.end
	}
	switch {
	case depth == 0 || !inKernel:
		r.fault(i, "a threadgroup variable outside of a kernel")
		return end
	case r.at(end) == "=":
		r.fault(i, "a threadgroup variable with an initial value")
		return end
	}
	typedef, variables := "typedef ", ""
	for n, part := range r.split(i+1, end) {
		name := part[0]
		for name < part[1] && r.at(name) != "[" {
			if r.at(name) == "<" {
				if c := r.closingAngle(name); c > 0 {
					name = c
				}
			}
			name++
		}
		name--
		if !r.name(name) || n == 0 && name == part[0] || n > 0 && name != part[0] {
			r.fault(i, "this declaration of threadgroup variables is not understood")
			return end
		}
		if n > 0 {
			typedef += ", "
		}
		id := r.at(name)
		typedef += r.text(part[0], name) + " " + id + "__t" + r.text(name+1, part[1])
		variables += fmt.Sprintf(" threadgroup %s__t &%s = ::msl::variable<%s__t>(%d, %q", id, id, id, r.sites, id)
		if alignment != "" {
			variables += ", " + alignment
		}
		variables += ");"
		r.sites++
	}
	r.replace(at, end+1, typedef+";"+variables)
	return end
}
