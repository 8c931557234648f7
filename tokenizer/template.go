package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controlStructures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	gonjaconfig "github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// A chat template is a program from a model's author. It is run by gonja with
// these bounds: it cannot read files (gonja's own loader lets it), nor run for
// long, nor recurse without end, nor write without end.
const (
	templateBytes  = 256 << 10 // source; the largest templates in use have some 30 KB
	templateNest   = 200       // brackets within brackets: the parser is recursive
	templateTime   = 2 * time.Second
	templateOutput = 32 << 20 // rendered text, and any one variable
	templateRange  = 1 << 17  // numbers of one range()
	macroDepth     = 50
)

// budget counts what one rendering has used. Templates find it in their
// context, under a name that they cannot write.
type budget struct {
	deadline time.Time
	depth    int
	failed   error // the first bound that was passed, or what the template raised
}

const budgetKey = "\x00budget"

func (b *budget) check() error {
	if b.failed == nil && time.Now().After(b.deadline) {
		b.failed = fmt.Errorf("rendering took more than %v", templateTime)
	}
	return b.failed
}

func budgetOf(ctx *exec.Context) *budget {
	v, _ := ctx.Get(budgetKey)
	b, ok := v.(*budget)
	if !ok {
		return &budget{failed: errors.New("template run outside of a rendering")}
	}
	return b
}

// limitedOutput collects the rendered text.
type limitedOutput struct {
	strings.Builder
	budget *budget
}

func (o *limitedOutput) Write(p []byte) (int, error) { return o.WriteString(string(p)) }

// WriteString implements io.StringWriter.
func (o *limitedOutput) WriteString(s string) (int, error) {
	if o.Len()+len(s) > templateOutput && o.budget.failed == nil {
		o.budget.failed = fmt.Errorf("the rendered text has more than %d bytes", templateOutput)
	}
	if err := o.budget.check(); err != nil {
		return 0, err
	}
	return o.Builder.WriteString(s)
}

// bounded is a statement ({% … %}) that looks at the budget first. What a
// template does between two statements is finite.
type bounded struct {
	exec.ControlStructure
	assigns string // the variable that a set statement changes
}

// Execute implements exec.ControlStructure.
func (s bounded) Execute(r *exec.Renderer, block *nodes.ControlStructureBlock) error {
	b := budgetOf(r.Environment.Context)
	if err := b.check(); err != nil {
		return err
	}
	if err := s.ControlStructure.Execute(r, block); err != nil {
		return err
	}
	if macro, ok := s.ControlStructure.(*controlStructures.MacroControlStructure); ok {
		boundMacro(r.Environment.Context, macro.Name, b)
	}
	if v, _ := r.Environment.Context.Get(s.assigns); s.assigns != "" && tooLong(v) {
		b.failed = fmt.Errorf("variable %q has more than %d bytes", s.assigns, templateOutput)
		return b.failed
	}
	return nil
}

// boundMacro keeps a macro just defined from calling itself without end, which
// would overflow the stack and end the process.
func boundMacro(ctx *exec.Context, name string, b *budget) {
	v, _ := ctx.Get(name)
	macro, ok := v.(exec.Macro)
	if !ok {
		return
	}
	ctx.Set(name, exec.Macro(func(params *exec.VarArgs) *exec.Value {
		if b.depth >= macroDepth && b.failed == nil {
			b.failed = fmt.Errorf("macros are nested more than %d deep at %q", macroDepth, name)
		}
		if err := b.check(); err != nil {
			return exec.AsValue(err)
		}
		b.depth++
		defer func() { b.depth-- }()
		return macro(params)
	}))
}

// tooLong tells whether a variable, or a value in a namespace, is a string
// past the bound: {% set s = s ~ s %} doubles it.
func tooLong(v any) bool {
	switch v := v.(type) {
	case string:
		return len(v) > templateOutput
	case *exec.Value:
		return v != nil && v.IsString() && len(v.String()) > templateOutput
	case map[string]any:
		for _, e := range v {
			if s, ok := e.(string); ok && len(s) > templateOutput {
				return true
			}
		}
	}
	return false
}

// statements are those that chat templates use. include, import, extends and
// block would reach for other templates: there are none.
var statements = []string{"if", "for", "set", "macro", "call", "filter", "with", "do", "raw", "break", "continue", "autoescape"}

// templateEnvironment is gonja's, with the statements bounded, the filters and
// functions of transformers, and a range that ends.
var templateEnvironment = sync.OnceValue(func() *exec.Environment {
	bound := make(map[string]parser.ControlStructureParser)
	for _, name := range statements {
		if parse, ok := builtins.ControlStructures.Get(name); ok {
			bound[name] = boundParser(name, parse)
		}
	}
	filters := exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters)
	// It exists, so this cannot fail.
	_ = filters.Replace("tojson", filterToJSON)
	globals := exec.EmptyContext()
	for _, name := range []string{"namespace", "dict", "joiner", "cycler"} {
		if f, ok := builtins.GlobalFunctions.Get(name); ok {
			globals.Set(name, f)
		}
	}
	globals.Set("range", rangeList)
	return &exec.Environment{
		Context:           globals,
		Filters:           filters,
		Tests:             builtins.Tests,
		ControlStructures: exec.NewControlStructureSet(bound),
		Methods:           templateMethods(),
	}
})

func boundParser(name string, parse parser.ControlStructureParser) parser.ControlStructureParser {
	return func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		assigns := ""
		if token := args.Current(); name == "set" && token != nil {
			assigns = token.Val
		}
		node, err := parse(p, args)
		if err != nil {
			return nil, err
		}
		if loop, ok := node.(*controlStructures.ForControlStructure); ok && loop.Recursive {
			return nil, errors.New("recursive loops are not supported")
		}
		statement, ok := node.(exec.ControlStructure)
		if !ok {
			return node, nil
		}
		return bounded{statement, assigns}, nil
	}
}

// rangeList is Python's range as a list. gonja's own leaves a goroutine behind
// for each loop that is broken off.
func rangeList(_ *exec.Evaluator, params *exec.VarArgs) *exec.Value {
	start, stop, step := 0, 0, 1
	for _, a := range params.Args {
		if !a.IsInteger() {
			return exec.AsValue(errors.New("range() wants whole numbers"))
		}
	}
	switch a := params.Args; len(a) {
	case 1:
		stop = a[0].Integer()
	case 2:
		start, stop = a[0].Integer(), a[1].Integer()
	case 3:
		start, stop, step = a[0].Integer(), a[1].Integer(), a[2].Integer()
	default:
		return exec.AsValue(fmt.Errorf("range() wants 1 to 3 arguments, not %d", len(a)))
	}
	if step == 0 {
		return exec.AsValue(errors.New("range() wants a step other than 0"))
	}
	list := []int{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(list) == templateRange {
			return exec.AsValue(fmt.Errorf("range() has more than %d numbers", templateRange))
		}
		list = append(list, i)
	}
	return exec.AsValue(list)
}

// compileTemplate parses a template with the settings of transformers.
func compileTemplate(source string) (compiled *exec.Template, err error) {
	defer recoverTo(&err)
	if len(source) > templateBytes {
		return nil, fmt.Errorf("the template has %d bytes; at most %d are supported", len(source), templateBytes)
	}
	depth := 0
	for _, c := range []byte(source) {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
		if depth > templateNest {
			return nil, fmt.Errorf("brackets are nested more than %d deep", templateNest)
		}
	}
	settings := gonjaconfig.New()
	settings.TrimBlocks, settings.LeftStripBlocks = true, true
	const name = "/chat_template"
	loader, err := loaders.NewMemoryLoader(map[string]string{name: source})
	if err != nil {
		return nil, err
	}
	compiled, err = exec.NewTemplate(name, settings, loader, templateEnvironment())
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // without the whole source before it
	}
	return compiled, oneLine(err)
}

// renderTemplate runs a compiled template within its bounds.
func renderTemplate(compiled *exec.Template, variables map[string]any) (text string, err error) {
	defer recoverTo(&err)
	b := &budget{deadline: time.Now().Add(templateTime)}
	variables[budgetKey] = b
	variables["raise_exception"] = func(_ *exec.Evaluator, params *exec.VarArgs) *exec.Value {
		message := "the template refused the conversation"
		if len(params.Args) > 0 {
			message = params.Args[0].String()
		}
		b.failed = oneLine(errors.New(message))
		return exec.AsValue(b.failed)
	}
	out := &limitedOutput{budget: b}
	err = compiled.Execute(out, exec.NewContext(variables))
	if b.failed != nil {
		return "", b.failed
	}
	if err != nil {
		return "", oneLine(err)
	}
	return out.String(), nil
}

// recoverTo turns a panic of the template engine into an error.
func recoverTo(err *error) {
	if r := recover(); r != nil {
		*err = oneLine(fmt.Errorf("the template engine failed: %v", r))
	}
}

// oneLine shortens an engine's error to one line of at most 300 bytes.
func oneLine(err error) error {
	if err == nil {
		return nil
	}
	line := strings.Join(strings.Fields(err.Error()), " ")
	if line == err.Error() && len(line) <= 300 {
		return err
	}
	if len(line) > 300 {
		line = strings.ToValidUTF8(line[:300], "") + "…"
	}
	return errors.New(line)
}
