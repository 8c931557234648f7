package backend

// Previewer is a backend that can use the time in which weights arrive.
type Previewer interface {
	// Preview is told of operations that a program will have which is compiled later, a part
	// of it, their weights perhaps still on their way: what their forwards need besides is
	// made ready in the background. Nothing is run, and nothing fails.
	Preview(p *Program)
}
