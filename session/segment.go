package session

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// A segment's file:
//
//	8 bytes   segmentMagic
//	4         version, little-endian as all numbers are
//	4         length of the header
//	          header: JSON
//	32        SHA-256 of all before
//	          pages: their bytes, and 4 of the CRC-32C of the SHA-256, the number of the
//	          page and its bytes; or, of a segment of states, one, of all of these
//	8         length of the file
//	8         segmentEnd
const (
	segmentMagic   = "WINDROWK"
	segmentEnd     = "KEYS-END"
	segmentVersion = 1
	segmentPages   = 16
	maxHeader      = 1 << 20
	maxStates      = 1 << 30
)

// header is what a segment says of itself.
type header struct {
	Fingerprint string  `json:"fingerprint"`
	Parent      hash    `json:"parent"`
	PageTokens  int     `json:"page_tokens"`
	PageBytes   int     `json:"page_bytes"`
	Tokens      []int32 `json:"tokens"`
	// State, where not nil, makes it a segment of states, behind its last token.
	State *stateHeader `json:"state,omitempty"`
}

// stateHeader is what a segment of states says of them.
type stateHeader struct {
	// From is the first number of tokens of the whole session that they go back to.
	From  int `json:"from"`
	Bytes int `json:"bytes"`
}

// check refuses headers that are of no segment.
func (h *header) check() error {
	switch n := len(h.Tokens); {
	case h.PageTokens < 1 || h.PageTokens > 1<<16 || h.PageBytes < 1 || h.PageBytes > 1<<30:
		return fmt.Errorf("pages of %d tokens and %d bytes", h.PageTokens, h.PageBytes)
	case n == 0 || n > segmentPages*h.PageTokens:
		return fmt.Errorf("%d tokens: want 1 to %d pages of %d", n, segmentPages, h.PageTokens)
	case h.State != nil && (h.State.From < 0 || h.State.Bytes < 1 || h.State.Bytes > maxStates):
		return fmt.Errorf("states of %d bytes from token %d on", h.State.Bytes, h.State.From)
	}
	return nil
}

// pages is how many it has; the last may be of fewer tokens.
func (h *header) pages() int {
	if h.State != nil {
		return 1
	}
	return (len(h.Tokens) + h.PageTokens - 1) / h.PageTokens
}

// pageSize is what each of them has.
func (h *header) pageSize() int {
	if h.State != nil {
		return h.State.Bytes
	}
	return h.PageBytes
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// pageCRC is the check of a page.
func pageCRC(sum *hash, page int, data []byte) uint32 {
	return crc32.Update(pageSeed(sum, page), castagnoli, data)
}

// pageSeed is that of a page without bytes.
func pageSeed(sum *hash, page int) uint32 {
	c := crc32.Update(0, castagnoli, sum[:])
	return crc32.Update(c, castagnoli, binary.LittleEndian.AppendUint32(nil, uint32(page)))
}

// encode is a header as a file begins with it, hash and all.
func (h *header) encode() ([]byte, hash) {
	text, _ := json.Marshal(h) // numbers and texts: cannot fail
	head := []byte(segmentMagic)
	head = binary.LittleEndian.AppendUint32(head, segmentVersion)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(text)))
	head = append(head, text...)
	sum := sha256.Sum256(head)
	return append(head, sum[:]...), sum
}

// size is how long a segment's file is.
func (h *header) size() int64 {
	head, _ := h.encode()
	return int64(len(head)) + int64(h.pages())*int64(h.pageSize()+4) + 16
}

// write writes a segment; export gives its pages.
func (h *header) write(w io.Writer, export func(page int, dst []byte) error) error {
	head, sum := h.encode()
	if _, err := w.Write(head); err != nil {
		return err
	}
	n := h.pageSize()
	page := make([]byte, n+4)
	for i := range h.pages() {
		if err := export(i, page[:n]); err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(page[n:], pageCRC(&sum, i, page[:n]))
		if _, err := w.Write(page); err != nil {
			return err
		}
	}
	foot := binary.LittleEndian.AppendUint64(nil, uint64(h.size()))
	_, err := w.Write(append(foot, segmentEnd...))
	return err
}

// segmentFile is an open segment.
type segmentFile struct {
	header
	r     io.ReaderAt
	sum   hash
	first int64 // where the pages begin
}

// openSegment reads and checks all but the pages of a segment of so many bytes.
func openSegment(r io.ReaderAt, size int64) (*segmentFile, error) {
	var start [16]byte
	if _, err := r.ReadAt(start[:], 0); err != nil {
		return nil, fmt.Errorf("its beginning: %w", noEOF(err))
	}
	n := int64(binary.LittleEndian.Uint32(start[12:]))
	switch version := binary.LittleEndian.Uint32(start[8:]); {
	case string(start[:8]) != segmentMagic:
		return nil, errors.New("it is no segment")
	case version != segmentVersion:
		return nil, fmt.Errorf("version %d: want %d", version, segmentVersion)
	case n > maxHeader || 16+n+sha256.Size+16 > size:
		return nil, fmt.Errorf("a header of %d bytes in a file of %d", n, size)
	}
	head := make([]byte, 16+n+sha256.Size)
	if _, err := r.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("its header: %w", noEOF(err))
	}
	f := &segmentFile{r: r, first: int64(len(head)), sum: sha256.Sum256(head[:16+n])}
	if hash(head[16+n:]) != f.sum {
		return nil, errors.New("its header is not what was written")
	}
	if err := json.Unmarshal(head[16:16+n], &f.header); err != nil {
		return nil, fmt.Errorf("its header: %w", err)
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	want := f.first + int64(f.pages())*int64(f.pageSize()+4) + 16
	var foot [16]byte
	if size != want {
		return nil, fmt.Errorf("it has %d bytes: want %d", size, want)
	}
	if _, err := r.ReadAt(foot[:], size-16); err != nil {
		return nil, fmt.Errorf("its end: %w", noEOF(err))
	}
	if binary.LittleEndian.Uint64(foot[:]) != uint64(size) || string(foot[8:]) != segmentEnd {
		return nil, errors.New("its end is not what was written")
	}
	return f, nil
}

// pieceBytes is how much is read at once: it is checked while it is in the cache.
const pieceBytes = 256 << 10

// page reads and checks a page into memory of its size.
func (f *segmentFile) page(i int, memory []byte) error {
	if len(memory) != f.pageSize() {
		return fmt.Errorf("page %d has %d bytes, and is read to %d", i, f.pageSize(), len(memory))
	}
	at, c := f.first+int64(i)*int64(len(memory)+4), pageSeed(&f.sum, i)
	for piece := range slices.Chunk(memory, pieceBytes) {
		if _, err := f.r.ReadAt(piece, at); err != nil {
			return fmt.Errorf("page %d: %w", i, noEOF(err))
		}
		at, c = at+int64(len(piece)), crc32.Update(c, castagnoli, piece)
	}
	var want [4]byte
	if _, err := f.r.ReadAt(want[:], at); err != nil {
		return fmt.Errorf("page %d: %w", i, noEOF(err))
	}
	if binary.LittleEndian.Uint32(want[:]) != c {
		return fmt.Errorf("page %d is not what was written", i)
	}
	return nil
}

// noEOF names the end of a file that should go on.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
