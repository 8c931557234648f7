package cuda

import (
	"errors"

	"windrow/backend"
	"windrow/cuda/launch"
)

// previewRows are the passes whose kernels are loaded ahead: of prompts, most of which are
// short, of one row, of windows, those first that are needed first.
var previewRows = []int{128, 512, 1, 16, 64, 32, 256, 8, 4, 2}

// previewChunks are the contexts, in chunks, for which they are: attention of few rows chooses
// its kernel by them.
var previewChunks = []int{4, 16, 32, 64}

var _ backend.Previewer = (*Backend)(nil)

// Preview loads, in the background, the kernels of forwards with such operations, over
// keys and values in bf16. On a machine that has never run them that takes half a second and
// more, as long as weights take to arrive.
func (b *Backend) Preview(p *backend.Program) {
	if !b.preload || b.device == nil || b.device.Grouped() {
		return
	}
	f, err := b.compilePart(p)
	if err != nil {
		return // Compile tells
	}
	defer f.Close()
	b.device.Context.Enter()
	defer b.device.Context.Leave()
	for j, chunks := range previewChunks {
		for i, rows := range previewRows {
			if rows > invariantRows && chunks != previewChunks[0] {
				continue
			}
			if w, err := f.kernels(rows, chunks); err == nil {
				b.device.Preload(w, i+j*len(previewRows))
			}
		}
	}
}

// kernels are those of a pass of one sequence at a context of so many chunks, of which each
// row of few is wanted, and the last of many.
func (f *forward) kernels(rows, chunks int) (launch.Wanted, error) {
	g := f.rounded(sizes{
		rows: rows, spans: 1, slots: chunks * launch.ChunkSlots, longest: rows,
		kv:     backend.Layout{Layers: f.program.Stores(), DType: backend.KVBF16}.Keys(),
		prompt: rows > invariantRows && rows <= f.b.promptRows,
	})
	g.host = 4 * f.hostWidth * rows
	if f.program.HeadOp() != nil {
		wanted := 1
		if rows <= invariantRows {
			wanted = rows
		}
		g.head, g.top = launch.RowBucket(wanted), 1
	}
	s := section{ops: f.ops, shown: -1, first: true, last: true}
	y := &f.now
	y.geometry = g
	y.reset()
	var err error
	w, failed := f.b.device.Gather(func() {
		if err = y.make(s); err == nil {
			err = f.prepare(y)
		}
		if err == nil {
			f.b.emit(y, y.actions)
		}
	})
	return w, errors.Join(err, failed)
}

// previewPack loads the kernel that packs weights of a type, once.
func (b *Backend) previewPack(dt backend.DType, to launch.Packing) {
	if !b.preload || b.packs[dt] {
		return
	}
	if b.packs == nil {
		b.packs = map[backend.DType]bool{}
	}
	b.packs[dt] = true
	if w, err := b.device.Gather(func() { b.device.PackTo(to, 0, 0, 0) }); err == nil {
		b.device.Preload(w, 0)
	}
}
