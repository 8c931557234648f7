package server

import "windrow/tokenizer"

// tokenBytes are the bytes that a token stands for, as numbers.
func tokenBytes(t *tokenizer.Tokenizer, id int32) []int {
	token, _ := t.Token(id)
	var list []int
	for _, r := range token {
		b, ok := byteOf(r)
		if !ok {
			continue
		}
		list = append(list, int(b))
	}
	return list
}

// byteOf is the byte that a letter of the byte-level alphabet stands for: printable
// Latin-1 stands for itself, the others follow from U+0100 on.
func byteOf(r rune) (byte, bool) {
	if r < 256 {
		return byte(r), true
	}
	n := rune(256)
	for b := range rune(256) {
		printable := b >= '!' && b <= '~' || b >= '¡' && b <= '¬' || b >= '®'
		if printable {
			continue
		}
		if n == r {
			return byte(b), true
		}
		n++
	}
	return 0, false
}
