package tokenizer

// The byte-level alphabet of GPT-2: each byte is written as one character of
// the vocabulary file. Printable Latin-1 stands for itself, the 68 other bytes
// are moved to U+0100 and up, in order.

// byteRune is the character that stands for each byte.
var byteRune = func() (table [256]rune) {
	moved := rune(0x100)
	for b := range table {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			table[b] = rune(b)
			continue
		}
		table[b] = moved
		moved++
	}
	return table
}()

// runeByte is the inverse of byteRune; -1 marks characters outside the
// alphabet, which ends at U+0143.
var runeByte = func() (table [0x144]int16) {
	for r := range table {
		table[r] = -1
	}
	for b, r := range byteRune {
		table[r] = int16(b)
	}
	return table
}()

// appendAlphabet appends raw, each byte written as its character.
func appendAlphabet(dst []byte, raw string) []byte {
	for i := 0; i < len(raw); i++ {
		if r := byteRune[raw[i]]; r < 0x80 {
			dst = append(dst, byte(r))
		} else {
			dst = append(dst, 0xC0|byte(r>>6), 0x80|byte(r&0x3F))
		}
	}
	return dst
}

// appendRaw appends the bytes that a vocabulary token stands for. A token with
// any character outside the alphabet stands for its own UTF-8, as in the
// reference engine's ByteLevel decoder.
func appendRaw(dst []byte, token string) []byte {
	start := len(dst)
	for _, r := range token {
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			return append(dst[:start], token...)
		}
		dst = append(dst, byte(runeByte[r]))
	}
	return dst
}
