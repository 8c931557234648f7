package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
)

// A GGUF model may be cut into several files, as llama-gguf-split does:
// NAME-00001-of-00003.gguf and so on. The first has the metadata, and tensors or
// none; the others have theirs. Each says by split.no, from 0 on, which it is.

// ggufPart is what a file says of its place among others: part no, from 0 on, of
// count files with that many tensors together (-1: it does not say).
type ggufPart struct{ no, count, tensors int }

// part reads the split keys; a count of 1 where there are none.
func (g *GGUF) part() (p ggufPart, err error) {
	p = ggufPart{count: 1, tensors: -1}
	for _, f := range []struct {
		key         string
		value       *int
		least, most float64
	}{{"split.count", &p.count, 0, math.MaxUint16}, {"split.no", &p.no, 0, math.MaxUint16 - 1}, {"split.tensors.count", &p.tensors, 0, maxGGUFTensors}} {
		value, ok := g.Value(f.key)
		if !ok {
			continue
		}
		n := ggufNumberOf(value)
		if !(n >= f.least && n <= f.most) || n != math.Trunc(n) {
			return p, fmt.Errorf("%s: found %.40s, want a whole number from %v to %v", f.key, fmt.Sprint(value), f.least, f.most)
		}
		*f.value = int(n)
	}
	if p.count > 1 && p.no >= p.count {
		return p, fmt.Errorf("split.no: part %d of %d files, want 0 to %d", p.no, p.count, p.count-1)
	}
	p.count = max(p.count, 1)
	return p, nil
}

// ggufPartName is the name of part no of count, from 0 on.
func ggufPartName(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no+1, count)
}

// siblings finds the folder and the prefix of a part's file name; path may be a
// link to a file of such a name.
func siblings(path, resolved string, p ggufPart) (dir, prefix string, err error) {
	for _, at := range []string{path, resolved} {
		if prefix, ok := strings.CutSuffix(filepath.Base(at), ggufPartName("", p.no, p.count)); ok {
			return filepath.Dir(at), prefix, nil
		}
	}
	return "", "", fmt.Errorf("is part %d of %d: want it under the name NAME%s, beside the others", p.no+1, p.count, ggufPartName("", p.no, p.count))
}

// joinParts adds the tensors of the other files to those of the first, which
// stands at path. Files are mapped by the folder that open gives for theirs.
func (g *GGUF) joinParts(path, resolved string, open func(dir string) (*folder, error)) error {
	p, err := g.part()
	if err != nil || p.count == 1 {
		return err
	}
	dir, prefix, err := siblings(path, resolved, p)
	if err != nil {
		return err
	}
	if p.no != 0 {
		return fmt.Errorf("is part %d of %d: want the first one, %s", p.no+1, p.count, filepath.Join(dir, ggufPartName(prefix, 0, p.count)))
	}
	d, err := open(dir)
	if err != nil {
		return err
	}
	from := make(map[string]int, len(g.Tensors)) // the part that a tensor lies in
	for _, t := range g.Tensors {
		from[t.Name] = 0
	}
	for no := 1; no < p.count; no++ {
		name := ggufPartName(prefix, no, p.count)
		data, err := d.weights(name)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("is the first of %d parts: part %d is missing: want %s", p.count, no+1, d.path(name))
		}
		if err != nil {
			return err
		}
		other, err := ReadGGUF(data)
		if err != nil {
			return fmt.Errorf("%s: %w", d.path(name), err)
		}
		q, err := other.part()
		if err != nil {
			return fmt.Errorf("%s: %w", d.path(name), err)
		}
		if q.no != no || q.count != p.count || q.tensors != p.tensors {
			return fmt.Errorf("%s: says part %d of %d with %d tensors in all: want part %d of %d with %d, as the first one has it",
				d.path(name), q.no+1, q.count, q.tensors, no+1, p.count, p.tensors)
		}
		for _, t := range other.Tensors {
			if first, twice := from[t.Name]; twice {
				return fmt.Errorf("%s: gguf tensor %.80q stands in %s, too", d.path(name), t.Name, ggufPartName(prefix, first, p.count))
			}
			from[t.Name] = no
		}
		if g.Tensors = append(g.Tensors, other.Tensors...); len(g.Tensors) > maxGGUFTensors {
			return fmt.Errorf("%d tensors in %d parts: want at most %d", len(g.Tensors), no+1, maxGGUFTensors)
		}
	}
	if p.tensors >= 0 && len(g.Tensors) != p.tensors {
		return fmt.Errorf("has %d tensors in %d parts: want the %d of split.tensors.count", len(g.Tensors), p.count, p.tensors)
	}
	return nil
}
