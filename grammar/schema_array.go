package grammar

// array leads over the arrays that satisfy all parts.
func (s *schemaBuilder) array(from, to int32, w *wants, parts []part) {
	prefix := 0
	for _, p := range parts {
		prefix = max(prefix, len(p.list("prefixItems")))
		if v := p.v.get("items"); v != nil && v.kind == '[' {
			stop(ErrUnsupported, shown(pointer(p.at, "items")), "is a list, which is not supported: prefixItems is")
		}
	}
	item := func(i int) (out []part) {
		for _, p := range parts {
			if list := p.list("prefixItems"); i < len(list) {
				out = append(out, list[i])
			} else if v := p.v.get("items"); v != nil {
				out = append(out, p.child(v, "items"))
			}
		}
		return out
	}
	least, most := w.items[0], w.items[1]
	rest := s.rule(item(prefix)) // of all behind the prefix
	closeArray := s.node()       // behind an item
	s.edge(s.space(closeArray), ']', ']', to)
	at := s.space(s.literal(from, "["))
	if least == 0 {
		s.edge(at, ']', ']', to)
	}
	for i := 0; most < 0 || i < most; i++ {
		of := rest
		if i < prefix {
			of = s.rule(item(i))
		}
		behind := s.node()
		s.call(at, of, behind)
		if i+1 >= least {
			s.eps(behind, closeArray)
		}
		at = s.space(s.literal(behind, ","))
		if most < 0 && i >= prefix && i+1 >= least {
			s.call(at, rest, behind)
			return
		}
	}
}
