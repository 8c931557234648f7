package synthetic

import (
	"bytes"
	"fmt"
	"strconv"

	"windrow/tokenizer"
)

// Tokenizer is one for a vocabulary of that many ids, without a chat template: the 256
// bytes, then words of a space and their id in letters. Any text can be encoded, byte by
// byte, and each id shown. A shape has no tokenizer of its own.
func Tokenizer(vocabulary int) (*tokenizer.Tokenizer, error) {
	if vocabulary < 256 {
		return nil, fmt.Errorf("a vocabulary of %d ids: want 256, one for each byte", vocabulary)
	}
	var b bytes.Buffer
	b.WriteString(`{"model":{"type":"BPE","vocab":{`)
	for id := range vocabulary {
		if id > 0 {
			b.WriteByte(',')
		}
		if id < 256 {
			b.WriteString(quotedByte(byte(id)))
		} else {
			b.WriteString(`"Ġ` + letters(id) + `"`)
		}
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(id))
	}
	b.WriteString(`},"merges":[]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},"decoder":{"type":"ByteLevel"}}`)
	return tokenizer.New(b.Bytes(), nil)
}

// quotedByte is the letter of the byte-level alphabet that a byte has, as JSON:
// printable Latin-1 stands for itself, the others follow from U+0100 on.
func quotedByte(b byte) string {
	r, n := rune(b), rune(256)
	for c := range rune(256) {
		printable := c >= '!' && c <= '~' || c >= '¡' && c <= '¬' || c >= '®'
		if c == r {
			if !printable {
				r = n
			}
			break
		}
		if !printable {
			n++
		}
	}
	return fmt.Sprintf(`"\u%04x"`, r)
}

// letters is a number in the letters a to j.
func letters(n int) string {
	digits := []byte(strconv.Itoa(n))
	for i := range digits {
		digits[i] += 'a' - '0'
	}
	return string(digits)
}
