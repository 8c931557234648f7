// Package engine runs a language model on this machine: it opens the model with
// its tokenizer, chooses the device that holds the weights, turns conversations
// into prompts, and generates.
//
//	e, err := engine.Open(ctx, "path/to/model", engine.Options{})
//	if err != nil {
//		return err
//	}
//	defer e.Close()
//	messages := []tokenizer.Message{{Role: "user", Content: "What is 17 + 25?"}}
//	for event, err := range e.Generate(ctx, messages, decoder.Options{}) {
//		if err != nil {
//			return err
//		}
//		if text, ok := event.(decoder.Text); ok {
//			fmt.Print(text)
//		}
//	}
//
// The module's path is windrow, which nothing serves: another module uses a
// clone, by "replace windrow => ../windrow" in its go.mod beside
// "require windrow v0.0.0", or by a go.work that lists both.
//
// # What an Engine decides
//
// The zero decoder.Options are complete: [Engine.Complete] fills in the mode, the
// window, the bound of tokens, the stop ids and the vocabulary. With the zero
// Window, verified's window adapts to what a forward costs here. That is
// measured in less than a second when it is first needed, and kept in files
// ([Measurements]).
//
// A prompt that does not fit is a [ContextError], with the numbers; [ModeError],
// [MaskError], [BiasError], [TemplateError] and [MemoryError] say what else a model
// or a machine cannot do. Nothing is cut silently.
//
// # Concurrency
//
// All methods of an Engine may be called by many goroutines. The backend takes one
// at a time, and the Engine serialises: each forward waits for its turn, in the
// order of arrival, as long as its context lasts. Generations of several
// goroutines alternate forward by forward; none shares a forward with another.
// A program that wants shared forwards drives decoder.Sequences by one goroutine,
// over [Engine.NewCache] and [Engine.Forward].
//
// An Engine starts no goroutine that outlives the call that started it, but for
// the backend's workers, which Close ends, and an [Open] that was cancelled: what
// it opens after that is closed. There is no state outside of Engines. Nothing
// is printed: [Options] has callbacks for what people may want to know.
package engine
