package cpu

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestSlabs: whoever takes pages has zeros, where they are asked for, that nobody else has;
// what was given back is taken first, and what nobody has goes, but for one slab.
func TestSlabs(t *testing.T) {
	for i, size := range []int{8 << 10, 256 << 10, 132 << 10, 3 << 20} {
		zero := i != 1
		p := &slabs{bytes: size, zero: zero, each: pagesOfSlab(size)}
		if whole := p.each * size; whole < hugePage || whole%hugePage > whole/32 {
			t.Errorf("pages of %d: %d a slab", size, p.each)
		}
		r := rand.New(rand.NewPCG(uint64(size), 1))
		var pages []page
		var marks []byte
		peak := 0
		for step := range 400 {
			if n := len(pages); n > 0 && (r.IntN(5) < 2 || n > 3*p.each) {
				i := r.IntN(n)
				if want := bytes.Repeat(marks[i:i+1], size); !bytes.Equal(pages[i].memory, want) {
					t.Fatalf("pages of %d, step %d: somebody else has written", size, step)
				}
				p.Give(pages[i])
				pages[i], marks[i] = pages[n-1], marks[n-1]
				pages, marks = pages[:n-1], marks[:n-1]
				continue
			}
			x, err := p.Take()
			if err != nil {
				t.Fatal(err)
			}
			if len(x.memory) != size || cap(x.memory) != size || zero && !bytes.Equal(x.memory, make([]byte, size)) {
				t.Fatalf("pages of %d, step %d: a page of %d that is not zero", size, step, len(x.memory))
			}
			marks = append(marks, byte(1+step%255))
			for i := range x.memory {
				x.memory[i] = marks[len(marks)-1]
			}
			pages = append(pages, x)
			peak = max(peak, len(pages))
			if n, most := slabsOf(p, pages), (peak+p.each-1)/p.each; n > most+1 {
				t.Fatalf("pages of %d, step %d: %d slabs, and there were %d pages at most", size, step, n, peak)
			}
		}
		for _, x := range pages {
			p.Give(x)
		}
		if p.timer == nil {
			t.Error("nothing is to go")
		}
		p.trim()
		if len(p.open) != 1 {
			t.Errorf("pages of %d: %d slabs are held when all pages are back", size, len(p.open))
		}
		last, err := p.Take()
		if err != nil {
			t.Fatal(err)
		}
		p.close()
		last.memory[size-1] = 1 // of a storage that is closed after its backend
		p.Give(last)
		if len(p.open) != 0 {
			t.Error("slabs of a closed backend")
		}
	}
	if n := pagesOfSlab(7 << 20); n != 2 {
		t.Errorf("pages of 7 MiB: %d a slab, want 2", n)
	}
	none := &slabs{each: pagesOfSlab(0)}
	x, err := none.Take()
	if none.Give(x); err != nil || len(none.open) != 0 {
		t.Error("pages of nothing:", err)
	}
}

// slabsOf counts the slabs that pages are of, and those with free ones.
func slabsOf(p *slabs, pages []page) int {
	all := map[*slab]bool{}
	for _, x := range pages {
		all[x.slab] = true
	}
	for _, s := range p.open {
		all[s] = true
	}
	return len(all)
}
