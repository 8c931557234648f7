package eval

import "context"

// RunSensitivity measures what each of the classes, forms in which one kind of
// layer alone is quantised, does to the source: accuracy, tokens per forward,
// and the divergence of the next-token distribution. Classes are in memory one
// at a time. c and the report are as in [CompareForms].
func RunSensitivity(ctx context.Context, source Form, classes []Form, c GSM8K) (*FormsReport, error) {
	groups := make([][]Form, len(classes))
	for i := range classes {
		groups[i] = classes[i : i+1]
	}
	return runForms(ctx, source, groups, c)
}
