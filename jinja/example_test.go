package jinja_test

import (
	"context"
	"fmt"

	"windrow/jinja"
)

func Example() {
	template, err := jinja.Compile("{% for m in messages %}\n<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}\n<assistant>")
	if err != nil {
		fmt.Println(err)
		return
	}
	message := &jinja.Dict{}
	message.Set("role", "user")
	message.Set("content", " How many? ")
	text, err := template.Render(context.Background(), map[string]any{"messages": []any{message}}, jinja.Limits{})
	fmt.Println(text, err)
	_, err = jinja.Compile("{% if %}")
	fmt.Println(err)
	// Output:
	// <user>How many?
	// <assistant> <nil>
	// line 1: an expression is expected, not "%}"
}
