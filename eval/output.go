package eval

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"windrow/filelock"
)

// syncEvery is how much work a power failure may cost. A crash of the program
// alone costs at most the line being written.
const syncEvery = 2 * time.Second

// syncFile makes a file durable. Tests that open hundreds of files do without.
var syncFile = (*os.File).Sync

// output is an output file: JSON lines, one an item, appended as they finish.
type output struct {
	file   *os.File
	path   string
	end    int64 // behind the last whole line
	synced time.Time
	// resumed are the items that the file held when it was opened.
	resumed []Item
}

// openOutput opens or creates the file and reads the items of an earlier run
// from it. A last line torn by an interruption is cut off; anything else that
// is no item of the same run over the same data is refused, and the file left
// as it was.
func openOutput(path string, d *Dataset, run string) (*output, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	o := &output{file: f, path: path, synced: time.Now()}
	if err := o.resume(d, run); err != nil {
		f.Close()
		return nil, fmt.Errorf("output %s: %w", path, err)
	}
	return o, nil
}

func (o *output) resume(d *Dataset, run string) error {
	if info, err := o.file.Stat(); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return errors.New("not a regular file, so it cannot be resumed")
	}
	// Two runs that resume one file would write every item twice.
	if err := filelock.TryLock(o.file); errors.Is(err, filelock.ErrHeld) {
		return errors.New("another run is writing it")
	} else if err != nil {
		return err
	}
	seen := map[itemKey]int{}
	lines := newLineReader(o.file)
	unended := false
	for {
		line, whole, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		it, err := parseItem(line)
		if err != nil {
			if !whole && isTorn(line) {
				break
			}
			return fmt.Errorf("line %d: %w; give another file", lines.number, err)
		}
		if err := compareRuns(it.Run, run); err != nil {
			return fmt.Errorf("line %d: %w; give another file", lines.number, err)
		}
		if it.Index >= len(d.Problems) || d.Problems[it.Index].Question != it.Question {
			return fmt.Errorf("line %d: index %d is another question in %s; give another file", lines.number, it.Index, d.Name)
		}
		if first, ok := seen[it.key()]; ok {
			return fmt.Errorf("line %d: repeats item %d (%s) of line %d; remove one", lines.number, it.Index, it.Name(), first)
		}
		seen[it.key()] = lines.number
		o.resumed = append(o.resumed, it)
		o.end = lines.end
		unended = !whole
	}
	if err := o.file.Truncate(o.end); err != nil {
		return err
	}
	if _, err := o.file.Seek(o.end, io.SeekStart); err != nil {
		return err
	}
	if unended {
		return o.write([]byte("\n"))
	}
	return nil
}

// isTorn reports whether a last line without a newline may be the beginning
// of an item, with zeros behind it where a file system lost the data after a
// power failure. Any other text is somebody's file and is not cut.
func isTorn(line []byte) bool {
	line = bytes.TrimRight(line, "\x00")
	start := []byte(`{"index":`)
	n := min(len(line), len(start))
	return bytes.Equal(line[:n], start[:n])
}

// append writes one item. After an error the file ends with the item before.
func (o *output) append(it Item) error {
	line, err := it.line()
	if err == nil {
		err = o.write(line)
	}
	if err != nil {
		return fmt.Errorf("output %s: %w", o.path, err)
	}
	return nil
}

func (o *output) write(line []byte) error {
	if _, err := o.file.Write(line); err != nil {
		// A full disk leaves half a line; the next run would cut it as well.
		return errors.Join(err, o.file.Truncate(o.end))
	}
	o.end += int64(len(line))
	if now := time.Now(); now.Sub(o.synced) >= syncEvery {
		o.synced = now
		return syncFile(o.file)
	}
	return nil
}

// Close makes the file durable and closes it.
func (o *output) Close() error {
	if err := errors.Join(syncFile(o.file), o.file.Close()); err != nil {
		return fmt.Errorf("output %s: %w", o.path, err)
	}
	return nil
}
