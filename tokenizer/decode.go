package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Decode returns the text of ids. skipSpecial leaves special tokens out. Ids
// without a token add nothing, and bytes that are not UTF-8 become U+FFFD, one
// for each maximal invalid part (the rule of the reference engine, and of the
// Unicode Standard, section 3.9).
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	raw := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		raw = t.appendToken(raw, id, skipSpecial)
	}
	if utf8.Valid(raw) {
		return string(raw)
	}
	var b strings.Builder
	b.Grow(len(raw) + 8)
	appendLossy(&b, raw, true)
	return b.String()
}

// Bytes are what an id stands for in a text: they need not be whole characters. It is
// nil for special ids, and for ids that there are not.
func (t *Tokenizer) Bytes(id int32) []byte { return t.appendToken(nil, id, true) }

// appendToken appends the bytes that id stands for.
func (t *Tokenizer) appendToken(raw []byte, id int32, skipSpecial bool) []byte {
	if id < 0 || int(id) >= len(t.tokens) || skipSpecial && t.special[id] {
		return raw
	}
	return appendRaw(raw, t.tokens[id])
}

// appendLossy writes raw to b as UTF-8 with U+FFFD for each maximal invalid
// part, and returns how many bytes it took. Unless final is set it leaves an
// incomplete character at the end, which further bytes may complete.
func appendLossy(b *strings.Builder, raw []byte, final bool) int {
	i := 0
	for i < len(raw) {
		r, n := utf8.DecodeRune(raw[i:])
		if r != utf8.RuneError || n > 1 {
			b.Write(raw[i : i+n])
			i += n
			continue
		}
		part, complete := invalidPart(raw[i:])
		if !complete && !final {
			break
		}
		b.WriteRune(utf8.RuneError)
		i += part
	}
	return i
}

// invalidPart returns the length of the maximal invalid part at the start of
// raw, which holds no whole character there. complete is false where the part
// is a character cut off by the end of raw.
func invalidPart(raw []byte) (n int, complete bool) {
	// The second byte's range keeps out overlong forms, surrogates and
	// everything past U+10FFFF.
	low, high, size := byte(0x80), byte(0xBF), 0
	switch c := raw[0]; {
	case c >= 0xC2 && c <= 0xDF:
		size = 2
	case c == 0xE0:
		low, size = 0xA0, 3
	case c == 0xED:
		high, size = 0x9F, 3
	case c >= 0xE1 && c <= 0xEF:
		size = 3
	case c == 0xF0:
		low, size = 0x90, 4
	case c >= 0xF1 && c <= 0xF3:
		size = 4
	case c == 0xF4:
		high, size = 0x8F, 4
	default:
		return 1, true
	}
	for n = 1; n < size; n++ {
		if n == len(raw) {
			return n, false
		}
		if raw[n] < low || raw[n] > high {
			return n, true
		}
		low, high = 0x80, 0xBF
	}
	return n, true
}
