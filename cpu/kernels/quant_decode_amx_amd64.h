// The first stage of quantBlocks, within it: decodes a step of a block to bytes in
// the buffer, and its scales and biases where the blocks hold them; direct ones
// are prefetched only. AX: rows of the step, BX their stride, CX how many; DI:
// the decoded rows; R8: what to prefetch.

q80:
	MOVQ wout-40(SP), DX
	SCALES4(34)
	ADDQ $256, DX
	MOVQ DX, wout-40(SP)
	CMPQ KIND(R15), $5
	JNE  directRow
	MOVQ OUTS(R15), CX

gather80:
	VMOVDQU32 2(AX), Y16
	VMOVDQU32 36(AX), Y17
	VMOVDQU32 70(AX), Y18
	VMOVDQU32 104(AX), Y19
	VMOVDQU32 Y16, (DI)
	VMOVDQU32 Y17, 32(DI)
	VMOVDQU32 Y18, 64(DI)
	VMOVDQU32 Y19, 96(DI)
	ADDQ BX, AX
	ADDQ $128, DI
	DECQ CX
	JNZ  gather80
	JMP  decoded

direct:
	CMPQ KIND(R15), $5
	JNE  directRow

gather:
	VMOVDQU32 (AX), Z16
	VMOVDQU32 64(AX), Z17
	VMOVDQU32 Z16, (DI)
	VMOVDQU32 Z17, 64(DI)
	ADDQ BX, AX
	ADDQ $128, DI
	DECQ CX
	JNZ  gather
	JMP  decoded

directRow:
	PREFETCHT0 (R8)
	PREFETCHT0 64(R8)
	ADDQ BX, R8
	DECQ CX
	JNZ  directRow
	JMP  decoded

affine4:
	CMPQ GROUPS(R15), $4
	JNE  split4
	MOVQ $128, DX

affine4Row:
	VPMOVZXBW (AX), Z16
	VPMOVZXBW 32(AX), Z17
	PREFETCHT0 (R8)
	VPSLLW $4, Z16, Z18
	VPSLLW $4, Z17, Z19
	VPTERNLOGD $0xA8, Z24, Z18, Z16
	VPTERNLOGD $0xA8, Z24, Z19, Z17
	VMOVDQU32 Z16, (DI)
	VMOVDQU32 Z17, 64(DI)
	ADDQ BX, AX
	ADDQ BX, R8
	ADDQ DX, DI
	DECQ CX
	JNZ  affine4Row
	JMP  decoded

	// 64 elements become the even ones and the odd ones.
split4:
	MOVQ $128, DX
	LEAQ (BX)(BX*2), R14
	CMPQ CX, $16
	JNE  split4Row

split4Rows:
	SPLIT4((AX), 32(AX), (DI), 64(DI))
	PREFETCHT0 (R8)
	ADDQ DX, DI
	SPLIT4((AX)(BX*1), 32(AX)(BX*1), (DI), 64(DI))
	PREFETCHT0 (R8)(BX*1)
	ADDQ DX, DI
	SPLIT4((AX)(BX*2), 32(AX)(BX*2), (DI), 64(DI))
	PREFETCHT0 (R8)(BX*2)
	ADDQ DX, DI
	SPLIT4((AX)(R14*1), 32(AX)(R14*1), (DI), 64(DI))
	PREFETCHT0 (R8)(R14*1)
	ADDQ DX, DI
	LEAQ (AX)(BX*4), AX
	LEAQ (R8)(BX*4), R8
	SUBQ $4, CX
	JNZ  split4Rows
	JMP  decoded

split4Row:
	SPLIT4((AX), 32(AX), (DI), 64(DI))
	ADDQ BX, AX
	ADDQ DX, DI
	DECQ CX
	JNZ  split4Row
	JMP  decoded

q40:
	MOVQ wout-40(SP), DX
	SCALES4(18)
	ADDQ $256, DX
	MOVQ DX, wout-40(SP)
	MOVQ $128, DX

q40Row:
	VBROADCASTI32X4 2(AX), Z16
	VBROADCASTI32X4 38(AX), Z17
	VBROADCASTI32X4 20(AX), K4, Z16
	VBROADCASTI32X4 56(AX), K4, Z17
	PREFETCHT0 (R8)
	PREFETCHT0 64(R8)
	VPSRLVW Z25, Z16, Z16
	VPSRLVW Z25, Z17, Z17
	VPANDD Z24, Z16, Z16
	VPANDD Z24, Z17, Z17
	VPSUBB Z29, Z16, Z16
	VPSUBB Z29, Z17, Z17
	VMOVDQU32 Z16, (DI)
	VMOVDQU32 Z17, 64(DI)
	ADDQ BX, AX
	ADDQ BX, R8
	ADDQ DX, DI
	DECQ CX
	JNZ  q40Row
	JMP  decoded

q4k:
	CMPQ half-96(SP), $0
	JNE  q4kRows
	// Scales and minima of 8 sub-blocks: Z18 d, Z19 -dmin, Z20, Z21, Z22 the
	// three dwords of 6-bit numbers.
	MOVQ wout-40(SP), DX
	MOVQ biasout-56(SP), R14
	SCALES4K
	MOVQ OUTS(R15), CX
	ADDQ $512, DX
	ADDQ $512, R14
	MOVQ DX, wout-40(SP)
	MOVQ R14, biasout-56(SP)

q4kRows:
	MOVQ half-96(SP), DX
	SHLQ $6, DX
	LEAQ 16(AX)(DX*1), AX
	MOVQ $128, DX

	LEAQ (BX)(BX*2), R14
	CMPQ CX, $16
	JNE  q4kRow

q4kRows4:
	SPLIT4((AX), 32(AX), (DI), 64(DI))
	PREFETCHT0 (R8)
	PREFETCHT0 64(R8)
	ADDQ DX, DI
	SPLIT4((AX)(BX*1), 32(AX)(BX*1), (DI), 64(DI))
	PREFETCHT0 (R8)(BX*1)
	PREFETCHT0 64(R8)(BX*1)
	ADDQ DX, DI
	SPLIT4((AX)(BX*2), 32(AX)(BX*2), (DI), 64(DI))
	PREFETCHT0 (R8)(BX*2)
	PREFETCHT0 64(R8)(BX*2)
	ADDQ DX, DI
	SPLIT4((AX)(R14*1), 32(AX)(R14*1), (DI), 64(DI))
	PREFETCHT0 (R8)(R14*1)
	PREFETCHT0 64(R8)(R14*1)
	ADDQ DX, DI
	LEAQ (AX)(BX*4), AX
	LEAQ (R8)(BX*4), R8
	SUBQ $4, CX
	JNZ  q4kRows4
	JMP  halved

q4kRow:
	SPLIT4((AX), 32(AX), (DI), 64(DI))
	ADDQ BX, AX
	ADDQ DX, DI
	DECQ CX
	JNZ  q4kRow
	JMP  halved

q6k:
	CMPQ half-96(SP), $0
	JNE  q6kRows
	MOVQ wout-40(SP), DX
	SCALES6K
	ADDQ $1024, DX
	MOVQ DX, wout-40(SP)

q6kRows:
	// AX: low bits at 64*half; R14: high bits at 128 + 32*half.
	MOVQ half-96(SP), DX
	SHLQ $5, DX
	LEAQ 128(AX)(DX*1), R14
	LEAQ (AX)(DX*2), AX
	MOVQ $128, DX

q6kRow:
	VMOVDQU32 (AX), Z16
	VBROADCASTI64X4 (R14), Z17
	PREFETCHT0 (R8)
	PREFETCHT0 64(R8)
	VPSRLW $4, Z16, Z18
	VPSLLVW Z26, Z17, Z19
	VPSRLVW Z25, Z17, Z20
	VPANDD Z27, Z19, Z19
	VPANDD Z27, Z20, Z20
	// (x & 0x0F) | y
	VPTERNLOGD $0xF8, Z24, Z16, Z19
	VPTERNLOGD $0xF8, Z24, Z18, Z20
	VPSUBB Z29, Z19, Z19
	VPSUBB Z29, Z20, Z20
	VMOVDQU32 Z19, (DI)
	VMOVDQU32 Z20, 64(DI)
	ADDQ BX, AX
	ADDQ BX, R14
	ADDQ BX, R8
	ADDQ DX, DI
	DECQ CX
	JNZ  q6kRow

halved:
	// A block of 256 is two steps.
	XORQ $1, half-96(SP)
	JNZ  decodedHere

decoded:
	MOVQ ASTEP(R15), AX
	ADDQ AX, pa-8(SP)

decodedHere:
	MOVQ PSTEP(R15), AX
	ADDQ AX, pp-24(SP)
	DECQ left-32(SP)
	JNZ  decodeOnly
	MOVQ nextblock-136(SP), AX
	MOVQ AX, pp-24(SP)

decodeOnly:
	CMPQ KIND(R15), $5
	JNE  toggle
	ADDQ $BUFHALF, bufin-104(SP)
	JMP  next

toggle:
	XORQ $BUFHALF, bufin-104(SP)
