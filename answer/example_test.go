package answer_test

import (
	"fmt"

	"windrow/answer"
)

// The text comes in pieces, as a model generates it; here it is cut anyhow.
func Example() {
	p, err := answer.New(answer.Options{
		Thinking: answer.ThinkingTagged,
		Form:     answer.FormJSON,
		NewID:    answer.IDs("the prompt, and the seed"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pieces := []string{"<thi", "nk>\nA tool", " knows.\n</think>\n", "\nLet me look.\n<tool", "_call>\n{\"name\": \"weather\", \"argu", "ments\": {\"city\":", " \"Lyon\"}}\n</tool_call>"}
	show := func(events []answer.Event) {
		for _, e := range events {
			switch e.Kind {
			case answer.CallBegin:
				fmt.Println(e.Kind, e.Index, e.Name)
			case answer.CallEnd:
				fmt.Println(e.Kind, e.Index)
			case answer.Finish:
				fmt.Println(e.Kind, e.Reason)
			default:
				fmt.Printf("%v %q\n", e.Kind, e.Text)
			}
		}
	}
	for _, piece := range pieces {
		show(p.Write(piece))
	}
	show(p.Close(answer.Ended))
	// Output:
	// reasoning "A tool"
	// reasoning " knows."
	// content "Let me look."
	// call begin 0 weather
	// arguments "{\"city\":"
	// arguments " \"Lyon\"}"
	// call end 0
	// finish tool_calls
}

func ExampleParse() {
	m, err := answer.Parse("<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>", answer.Ended, answer.Options{
		Form:  answer.FormCoder,
		Tools: []byte(`[{"type": "function", "function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}}]`),
	})
	fmt.Println(m.Calls[0].Name, m.Calls[0].Arguments, m.Reason, err)
	// Output: add {"a":1} tool_calls <nil>
}

// A grammar that forces a call begins with this text.
func ExampleForm_Force() {
	fmt.Printf("%q\n%q\n", answer.FormJSON.Force("add"), answer.FormCoder.Force("add"))
	// Output:
	// "<tool_call>\n{\"name\": \"add\", \"arguments\": "
	// "<tool_call>\n<function=add>\n"
}
