package kernels

// The decoders of a step, one for each format and each order of the buffer:
// 8 rows of weights, stride bytes apart, from src on. buf takes 8·elements
// bytes; scales and biases, [groups, 8], are set where the format's blocks hold
// them.

//go:noescape
func decodeBytesDot(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeAffine4Dot(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeQ80Dot(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeQ40Dot(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeQ4KDot(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeQ6KDot(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeQ5KDot(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeBytesMmla(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeAffine4Mmla(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeQ80Mmla(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeQ40Mmla(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeQ4KMmla(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeQ6KMmla(buf *int8, scales, biases *float32, src *byte, stride, elements int)

//go:noescape
func decodeQ5KMmla(buf *int8, scales, biases *float32, src *byte, stride, elements int)

// decode calls the decoder of the format; static calls keep what is on the stack
// there.
func (q quantDots) decode(buf *int8, scales, biases *float32, src *byte, stride, elements int) {
	if q.mmla {
		switch q.format {
		case formatDirect:
			decodeBytesMmla(buf, scales, biases, src, stride, elements)
		case formatAffine4:
			decodeAffine4Mmla(buf, scales, biases, src, stride, elements)
		case formatQ8_0:
			decodeQ80Mmla(buf, scales, biases, src, stride, elements)
		case formatQ4_0:
			decodeQ40Mmla(buf, scales, biases, src, stride, elements)
		case formatQ4_K:
			decodeQ4KMmla(buf, scales, biases, src, stride, elements)
		case formatQ6_K:
			decodeQ6KMmla(buf, scales, biases, src, stride, elements)
		case formatQ5_K:
			decodeQ5KMmla(buf, scales, biases, src, stride, elements)
		}
		return
	}
	switch q.format {
	case formatDirect:
		decodeBytesDot(buf, scales, biases, src, stride, elements)
	case formatAffine4:
		decodeAffine4Dot(buf, scales, biases, src, stride, elements)
	case formatQ8_0:
		decodeQ80Dot(buf, scales, biases, src, stride, elements)
	case formatQ4_0:
		decodeQ40Dot(buf, scales, biases, src, stride, elements)
	case formatQ4_K:
		decodeQ4KDot(buf, scales, biases, src, stride, elements)
	case formatQ6_K:
		decodeQ6KDot(buf, scales, biases, src, stride, elements)
	case formatQ5_K:
		decodeQ5KDot(buf, scales, biases, src, stride, elements)
	}
}
