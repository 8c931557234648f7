package grammar

import "slices"

// disjoint reports whether no value can satisfy both lists of parts, as far as
// that is seen at once: by type, by enum, by a member that both require with
// values that are disjoint (a discriminator), by a member that one requires and
// the other forbids. deep bounds how far down it looks.
func (s *schemaBuilder) disjoint(a, b []part, deep int) bool {
	s.tick()
	fa, never := s.flatten(a)
	if never {
		return true
	}
	fb, never := s.flatten(b)
	if never {
		return true
	}
	if deep == 0 {
		return false
	}
	for range 2 { // alternatives of either: each must be disjoint from the other
		for i, p := range fa {
			for _, key := range []string{"anyOf", "oneOf"} {
				if p.v.get(key) == nil || p.anyDone && key == "anyOf" || p.oneDone && key == "oneOf" {
					continue
				}
				all := true
				for _, sub := range p.list(key) {
					with := append([]part(nil), fa...)
					with[i].anyDone = with[i].anyDone || key == "anyOf"
					with[i].oneDone = with[i].oneDone || key == "oneOf"
					all = all && s.disjoint(append(with, sub), fb, deep-1)
				}
				if all {
					return true
				}
			}
		}
		fa, fb = fb, fa
	}
	wa, wb := s.wants(fa), s.wants(fb)
	overlap := wa.possible() & wb.possible()
	if wa.hasEnum && wb.hasEnum {
		return !slices.ContainsFunc(wa.enum, func(v *value) bool {
			return slices.ContainsFunc(wb.enum, func(other *value) bool { return same(v, other) })
		})
	}
	if overlap&^isObject != 0 {
		return false
	}
	if overlap == 0 {
		return true
	}
	oa, ob := s.readObject(fa), s.readObject(fb)
	for range 2 {
		for _, name := range oa.names {
			if !oa.required[name] {
				continue
			}
			ma, mb := s.member(fa, name), s.member(fb, name)
			if _, never := s.flatten(mb); never {
				return true
			}
			if ob.required[name] && s.disjoint(ma, mb, deep-1) {
				return true
			}
		}
		fa, fb, oa, ob = fb, fa, ob, oa
	}
	return false
}

// possible are the types that a value can be of.
func (w *wants) possible() types {
	if !w.hasEnum {
		return w.types
	}
	var t types
	for _, v := range w.enum {
		t |= v.types()
	}
	return t & w.types
}
