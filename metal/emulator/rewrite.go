package emulator

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rewriter turns preprocessed Metal source into C++ for clang: it reads and
// drops the attributes, moves threadgroup variables into the emulator's memory,
// makes constructors and casts of vectors functions of the shim (runtime/),
// and appends an entry point for each kernel. It is lexical: types are known by
// their names.
type rewriter struct {
	stream
	lint      bool
	types     map[string]bool // names that may stand for a vector type
	kernels   map[string]*function
	order     []*function
	instances []instance
	edits     []edit
	sites     int
	faults    []error
}

// function is a kernel's definition.
type function struct {
	name, host string
	template   bool
	most       string // threads in a threadgroup
	params     []param
	body, end  int // tokens of the braces
}

type param struct {
	attribute, index string
	components       int // of the type: 1 to 4
}

// instance is an entry point: its host name, and what names the function.
type instance struct {
	host, expression string
	of               *function
}

type edit struct {
	begin, end int
	text       string
}

var (
	vectorName = regexp.MustCompile(`^(char|uchar|short|ushort|int|uint|long|ulong|float|half|bfloat|bool)[234]$`)
	plainFloat = regexp.MustCompile(`^([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$|^[0-9]+[eE][-+]?[0-9]+$`)
	pragma     = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*pragma.*$`)
	lineMarker = regexp.MustCompile(`^#(?:line)? ([0-9]+) "([^"]*)"`)
)

// attributes of parameters, by their names in msl_entry.h. Positions are three
// numbers or the first of them.
var attributes = map[string]struct{ position bool }{
	"buffer": {}, "threadgroup": {},
	"thread_position_in_grid": {true}, "thread_position_in_threadgroup": {true}, "threadgroup_position_in_grid": {true},
	"threads_per_threadgroup": {true}, "threadgroups_per_grid": {true}, "threads_per_grid": {true},
	"thread_index_in_simdgroup": {}, "simdgroup_index_in_threadgroup": {}, "thread_index_in_threadgroup": {},
	"simdgroups_per_threadgroup": {}, "threads_per_simdgroup": {},
}

const maxBuffers = 31

// maxFaults is how many faults of a source are told.
const maxFaults = 10

// assumed are names for what fast math assumes not to be.
var assumed = map[string]bool{"INFINITY": true, "NAN": true, "HUGE_VALF": true, "isnan": true, "isinf": true, "isfinite": true}

// rewrite returns the C++ of preprocessed source: to run, or, for lint, to
// look at with real address spaces.
// With names of kernels, these alone get entry points.
func rewrite(source string, lint bool, only ...string) (string, error) {
	source = pragma.ReplaceAllString(source, "")
	tokens, err := lex(source)
	if err != nil {
		return "", err
	}
	r := &rewriter{
		stream:  stream{source, tokens},
		lint:    lint,
		types:   map[string]bool{},
		kernels: map[string]*function{},
	}
	r.collectTypes()
	r.collectKernels()
	r.walk()
	r.checkInstances()
	if len(r.faults) > 0 {
		return "", errors.Join(r.faults...)
	}
	if len(only) > 0 {
		r.instances = slices.DeleteFunc(r.instances, func(in instance) bool { return !slices.Contains(only, in.host) })
	}
	return r.apply() + r.entries(), nil
}

func (r *rewriter) fault(i int, format string, args ...any) {
	if len(r.faults) == maxFaults {
		return
	}
	r.faults = append(r.faults, fmt.Errorf("%s: %s", r.place(i), fmt.Sprintf(format, args...)))
}

// place names the line of a token.
func (r *rewriter) place(i int) string {
	file, number := "source", 1
	end := len(r.source)
	if i < len(r.tokens) {
		end = r.tokens[i].begin
	}
	for line := range strings.Lines(r.source[:end]) {
		if m := lineMarker.FindStringSubmatch(line); m != nil {
			number, _ = strconv.Atoi(m[1])
			file = m[2]
		} else if strings.HasSuffix(line, "\n") {
			number++
		}
	}
	return fmt.Sprintf("%s:%d", file, number)
}

// replace puts text in the place of tokens i to before j; lines stay where they are.
func (r *rewriter) replace(i, j int, text string) {
	begin, end := r.tokens[i].begin, r.tokens[j-1].end
	r.edits = append(r.edits, edit{begin, end, text + strings.Repeat("\n", strings.Count(r.source[begin:end], "\n"))})
}

func (r *rewriter) insert(offset int, text string) {
	r.edits = append(r.edits, edit{offset, offset, text})
}

// apply returns the source with the edits.
func (r *rewriter) apply() string {
	slices.SortStableFunc(r.edits, func(a, b edit) int { return a.begin - b.begin })
	var w strings.Builder
	at := 0
	for _, e := range r.edits {
		if e.begin < at {
			continue // inside of a place that is replaced as a whole
		}
		w.WriteString(r.source[at:e.begin])
		w.WriteString(e.text)
		at = e.end
	}
	w.WriteString(r.source[at:])
	return w.String()
}

// collectTypes finds the names that may stand for a vector: type parameters of
// templates, and other names of vectors.
func (r *rewriter) collectTypes() {
	vector := func(i, j int) bool {
		for ; i < j; i++ {
			if t := r.at(i); vectorName.MatchString(t) || t == "vec" || r.types[t] {
				return true
			}
		}
		return false
	}
	for i := range r.tokens {
		switch r.at(i) {
		case "typename", "class":
			if r.name(i+1) && (r.at(i-1) == "<" || r.at(i-1) == ",") {
				r.types[r.at(i+1)] = true
			}
		case "using":
			if r.name(i+1) && r.at(i+2) == "=" {
				end := i + 3
				for end < len(r.tokens) && r.at(end) != ";" && r.at(end) != "*" && r.at(end) != "&" {
					end++
				}
				if r.at(end) == ";" && vector(i+3, end) {
					r.types[r.at(i+1)] = true
				}
			}
		case "typedef":
			end := i + 1
			for end < len(r.tokens) && r.at(end) != ";" {
				end++
			}
			if r.name(end-1) && vector(i+1, end-1) {
				r.types[r.at(end-1)] = true
			}
		}
	}
}

// collectKernels finds the definitions of kernels.
func (r *rewriter) collectKernels() {
	for i := range r.tokens {
		if r.at(i) != "kernel" {
			continue
		}
		j := i + 1
		for r.at(j) == "]" {
			j++
		}
		for r.at(j) == "[[" {
			if j = r.closing(j); j < 0 {
				return
			}
			j++
		}
		if r.at(j) != "void" || !r.name(j+1) || r.at(j+2) != "(" {
			continue
		}
		close := r.closing(j + 2)
		if close < 0 {
			r.fault(i, "the parameters of kernel %s do not end", r.at(j+1))
			return
		}
		if r.at(close+1) != "{" {
			continue // a declaration
		}
		f := &function{name: r.at(j + 1), host: r.at(j + 1), most: "0", body: close + 1, end: r.closing(close + 1)}
		if f.end < 0 {
			r.fault(i, "the body of kernel %s does not end", f.name)
			return
		}
		for q := i; q >= 0 && r.at(q) != ";" && r.at(q) != "}"; q-- {
			f.template = f.template || r.at(q) == "template"
		}
		for q := j; q >= 0 && r.at(q) != ";" && r.at(q) != "}"; q-- {
			switch {
			case r.at(q) == "host_name":
				f.host = strings.Trim(r.at(q+2), `"`)
			case r.at(q) == "max_total_threads_per_threadgroup" && r.closing(q+1) > 0:
				f.most = r.text(q+2, r.closing(q+1))
			}
		}
		if r.kernels[f.name] != nil {
			r.fault(i, "kernel %s is defined twice", f.name)
		}
		r.params(f, j+3, close)
		r.kernels[f.name] = f
		r.order = append(r.order, f)
		if !f.template {
			r.instances = append(r.instances, instance{f.host, f.name, f})
		}
	}
}

// params reads a kernel's parameters, tokens i to before j.
func (r *rewriter) params(f *function, i, j int) {
	components := 0
	seen := map[string]bool{}
	for _, part := range r.split(i, j) {
		p := param{components: 1}
		space := ""
		for k := part[0]; k < part[1]; k++ {
			t := r.at(k)
			if space == "" && (t == "device" || t == "constant" || t == "threadgroup" || t == "thread") {
				space = t
			}
			if vectorName.MatchString(t) {
				p.components = int(t[len(t)-1] - '0')
			}
			if t != "[[" {
				continue
			}
			end := r.closing(k)
			if end < 0 || end > part[1] {
				break
			}
			p.attribute = r.at(k + 1)
			if r.at(k+2) == "(" && r.closing(k+2) > 0 {
				p.index = r.text(k+3, r.closing(k+2))
			}
			k = end
		}
		a, known := attributes[p.attribute]
		where := fmt.Sprintf("parameter %q of kernel %s", r.text(part[0], part[1]), f.name)
		switch {
		case p.attribute == "":
			r.fault(part[0], "%s has no attribute", where)
		case !known:
			r.fault(part[0], "%s: the attribute is not emulated", where)
		case p.attribute == "buffer" && space != "device" && space != "constant":
			r.fault(part[0], "%s: a buffer is in device or constant memory", where)
		case p.attribute == "threadgroup" && space != "threadgroup":
			r.fault(part[0], "%s: it is not in threadgroup memory", where)
		case p.attribute == "buffer" || p.attribute == "threadgroup":
			if n, err := strconv.Atoi(p.index); err != nil || n < 0 || n >= maxBuffers {
				r.fault(part[0], "%s: the index is no number from 0 to %d", where, maxBuffers-1)
			}
			if key := p.attribute + p.index; seen[key] {
				r.fault(part[0], "%s: the index is used twice", where)
			} else {
				seen[key] = true
			}
		case a.position && components != 0 && components != p.components:
			r.fault(part[0], "%s: positions and sizes of one kernel have the same number of components", where)
		case a.position:
			components = p.components
		}
		f.params = append(f.params, p)
	}
}

// checkInstances wants host names that are unique.
func (r *rewriter) checkInstances() {
	seen := map[string]bool{}
	for _, in := range r.instances {
		if seen[in.host] {
			r.faults = append(r.faults, fmt.Errorf("two kernels have the host name %q", in.host))
		}
		seen[in.host] = true
	}
	if len(r.instances) == 0 {
		r.faults = append(r.faults, errors.New("the source has no kernel"))
	}
}

// entries returns what registers the kernels, or, for lint, instantiates them.
func (r *rewriter) entries() string {
	var w strings.Builder
	w.WriteString("\n# 1 \"entries\"\nnamespace {\n")
	for i, in := range r.instances {
		if r.lint {
			fmt.Fprintf(&w, "auto *msl_use%d = &%s;\n", i, in.expression)
			continue
		}
		var pars []string
		for _, p := range in.of.params {
			index := p.index
			if index == "" {
				index = "0"
			}
			pars = append(pars, "msl::Par<msl::attribute_"+p.attribute+", "+index+">")
		}
		fmt.Fprintf(&w, "using msl_pars%d = msl::Pars<%s>;\n", i, strings.Join(pars, ", "))
		fmt.Fprintf(&w, "msl::Entry msl_entry%d{%q, [](const msl::Arguments &a) { msl::call(&%s, msl_pars%d{}, a); }, nullptr, %d, %s, nullptr};\n", i, in.host, in.expression, i, len(pars), in.of.most)
		fmt.Fprintf(&w, "__attribute__((constructor)) void msl_enter%d() { msl_entry%d.bindings = msl::bindings(&%s, msl_pars%d{}); msl::enter(&msl_entry%d); }\n", i, i, in.expression, i, i)
	}
	w.WriteString("}\n")
	return w.String()
}
