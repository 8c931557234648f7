package answer

// scanner checks a JSON text byte by byte (RFC 8259).
type scanner struct {
	state scan
	nest  []byte // the '{' and '[' that are open
	word  string // what is left of true, false or null
	hex   int    // digits that are left of \u
	key   bool   // the string is a key
}

// scan is what a scanner expects next, or is inside of.
type scan uint8

const (
	wantValue     scan = iota
	wantItem           // a value or ]
	wantFirstKey       // a key or }
	wantKey            // a key
	wantColon          //
	wantComma          // a comma or what closes
	inString           //
	inEscape           // after a backslash
	inHex              // after \u
	inWord             // of true, false, null
	afterMinus         // a digit must come
	afterZero          // no digit may come
	inInteger          //
	afterPoint         // a digit must come
	inFraction         //
	afterExponent      // a sign or a digit must come
	afterSign          // a digit must come
	inExponent         //
)

// maxNest is how deep values may nest; as in encoding/json.
const maxNest = 10000

// step takes the next byte of a value, or of what follows it. It reports
// whether the text can still become valid JSON.
func (s *scanner) step(b byte) bool {
	switch s.state {
	case inString:
		return s.stepString(b)
	case inEscape:
		return s.stepEscape(b)
	case inHex:
		s.hex--
		if s.hex == 0 {
			s.state = inString
		}
		return '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'f'
	case inWord:
		ok := b == s.word[0]
		if s.word = s.word[1:]; s.word == "" {
			s.state = wantComma
		}
		return ok
	case afterMinus, afterZero, inInteger, afterPoint, inFraction, afterExponent, afterSign, inExponent:
		if s.stepNumber(b) {
			return true
		}
		if s.state != wantComma { // ended too early
			return false
		}
	}
	if isSpace(b) {
		return true
	}
	switch s.state {
	case wantValue:
		return s.begin(b)
	case wantItem:
		return b == ']' && s.close(b) || b != ']' && s.begin(b)
	case wantFirstKey, wantKey:
		if b == '}' && s.state == wantFirstKey {
			return s.close(b)
		}
		s.state, s.key = inString, true
		return b == '"'
	case wantColon:
		s.state = wantValue
		return b == ':'
	}
	switch { // wantComma
	case b != ',':
		return s.close(b)
	case len(s.nest) == 0:
		return false
	case s.nest[len(s.nest)-1] == '{':
		s.state = wantKey
	default:
		s.state = wantValue
	}
	return true
}

// begin takes the first byte of a value.
func (s *scanner) begin(b byte) bool {
	switch {
	case b == '{':
		s.state = wantFirstKey
		s.nest = append(s.nest, b)
		return len(s.nest) <= maxNest
	case b == '[':
		s.state = wantItem
		s.nest = append(s.nest, b)
		return len(s.nest) <= maxNest
	case b == '"':
		s.state, s.key = inString, false
	case b == '-':
		s.state = afterMinus
	case b == '0':
		s.state = afterZero
	case '1' <= b && b <= '9':
		s.state = inInteger
	case b == 't':
		s.state, s.word = inWord, "rue"
	case b == 'f':
		s.state, s.word = inWord, "alse"
	case b == 'n':
		s.state, s.word = inWord, "ull"
	default:
		return false
	}
	return true
}

// close takes the byte that ends an object or a list.
func (s *scanner) close(b byte) bool {
	n := len(s.nest)
	if n == 0 || b != '}' && b != ']' || (b == '}') != (s.nest[n-1] == '{') {
		return false
	}
	s.nest = s.nest[:n-1]
	s.state = wantComma
	return true
}

func (s *scanner) stepString(b byte) bool {
	switch {
	case b == '"' && s.key:
		s.state = wantColon
	case b == '"':
		s.state = wantComma
	case b == '\\':
		s.state = inEscape
	}
	return b >= ' '
}

func (s *scanner) stepEscape(b byte) bool {
	s.state = inString
	switch b {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		s.state, s.hex = inHex, 4
		return true
	}
	return false
}

// stepNumber takes a byte of a number and reports whether it belongs to it. A
// number that may end here leaves s at wantComma.
func (s *scanner) stepNumber(b byte) bool {
	digit := '0' <= b && b <= '9'
	switch s.state {
	case afterMinus:
		if digit {
			s.state = inInteger
			if b == '0' {
				s.state = afterZero
			}
		}
		return digit
	case afterPoint:
		if digit {
			s.state = inFraction
		}
		return digit
	case afterExponent, afterSign:
		sign := s.state == afterExponent && (b == '+' || b == '-')
		if sign {
			s.state = afterSign
		} else if digit {
			s.state = inExponent
		}
		return sign || digit
	}
	// Here the number is whole, and may go on.
	switch {
	case digit && s.state != afterZero:
	case b == '.' && (s.state == afterZero || s.state == inInteger):
		s.state = afterPoint
	case b|0x20 == 'e' && s.state != inExponent:
		s.state = afterExponent
	default:
		s.state = wantComma
		return false
	}
	return true
}
