package eval

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds a line of a JSONL file. GSM8K's longest is 1.5 kB; an answer
// of 100,000 tokens is about 0.5 MB.
const maxLine = 8 << 20

// lineReader reads lines of at most maxLine bytes and knows where they lie.
type lineReader struct {
	r *bufio.Reader
	// number is that of the line last read, from 1; end is the offset behind it.
	number int
	end    int64
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10)}
}

// next returns the next line without its newline, and whether it had one; it
// is valid until the next call. The end of the input is io.EOF.
func (l *lineReader) next() (line []byte, whole bool, err error) {
	var long []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(long)+len(part) > maxLine {
			return nil, false, fmt.Errorf("line %d: longer than %d bytes", l.number+1, maxLine)
		}
		switch {
		case err == nil:
			line = part
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, part...)
			continue
		case errors.Is(err, io.EOF):
			if len(long)+len(part) == 0 {
				return nil, false, io.EOF
			}
			line = part
		default:
			return nil, false, err
		}
		if long != nil {
			line = append(long, line...)
		}
		l.number++
		l.end += int64(len(line))
		if line[len(line)-1] == '\n' {
			return line[:len(line)-1], true, nil
		}
		return line, false, nil
	}
}
