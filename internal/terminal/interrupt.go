package terminal

import (
	"errors"
	"io"
)

// errLineDropped ends the reading of a line at ctrl-C.
var errLineDropped = errors.New("line dropped")

// The byte of ctrl-C in a raw terminal, and the marks that a terminal in
// bracketed paste mode puts around what is pasted.
const (
	keyInterrupt = 3
	pasteStart   = "\x1b[200~"
	pasteEnd     = "\x1b[201~"
)

// interruptReader hands a raw terminal's bytes to the line editor, ctrl-C
// apart: that ends what was read so far with errLineDropped. The editor would
// take it for the end of the input and see it again at every later read.
//
// A ctrl-C within a paste drops the rest of the paste as well, which would
// otherwise be sent as lines that somebody typed. A second one ends that, for
// a paste whose end never comes.
type interruptReader struct {
	r       io.Reader
	buffer  [256]byte
	pending []byte                // of buffer: read, not yet handed on
	err     error                 // of the last read; reported behind its bytes
	recent  [len(pasteStart)]byte // the last bytes that passed

	pasting, skipping bool
}

// Read implements io.Reader.
func (r *interruptReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		// The editor's buffer is full of a key sequence that does not end; it
		// would read nothing for ever.
		return 0, errLineDropped
	}
	n := 0
	for n == 0 {
		if len(r.pending) == 0 {
			if err := r.err; err != nil {
				r.err = nil
				return 0, err
			}
			read, err := r.r.Read(r.buffer[:])
			r.pending, r.err = r.buffer[:read], err
		}
		for len(r.pending) > 0 && n < len(p) {
			b := r.pending[0]
			r.pending = r.pending[1:]
			if b == keyInterrupt {
				r.skipping = r.pasting && !r.skipping
				r.pasting = r.skipping
				return n, errLineDropped
			}
			skipped := r.skipping // the mark that ends a paste, too
			if r.see(b); !skipped {
				p[n] = b
				n++
			}
		}
	}
	return n, nil
}

// see looks for the marks of a paste.
func (r *interruptReader) see(b byte) {
	copy(r.recent[:], r.recent[1:])
	r.recent[len(r.recent)-1] = b
	switch string(r.recent[:]) {
	case pasteStart:
		r.pasting = true
	case pasteEnd:
		r.pasting, r.skipping = false, false
	}
}
