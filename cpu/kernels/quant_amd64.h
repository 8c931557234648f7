// What the kernels of quantised weights share. Z24..Z29 hold constants of the
// format: see CONSTANTS.

// TDPBSSD, TDPBUSD(b, a, c): c += a * b, signed or unsigned a, signed b.
#define TDPBSSD(b, a, c) \
	BYTE $0xC4; BYTE $0xE2; BYTE $(0x7B ^ ((b) << 3)); BYTE $0x5E; BYTE $(0xC0 | ((c) << 3) | (a))
#define TDPBUSD(b, a, c) \
	BYTE $0xC4; BYTE $0xE2; BYTE $(0x79 ^ ((b) << 3)); BYTE $0x5E; BYTE $(0xC0 | ((c) << 3) | (a))

// Offsets in quantCall.
#define CFG     0
#define ASTRIDE 16
#define ASTEP   24
#define OUTS    32
#define FORMAT  40
#define KIND    48
#define DIRECT  56
#define TSTRIDE 64
#define GSTEP   72
#define B       80
#define BSTRIDE 88
#define BGROUP  96
#define ROWS    104
#define SX      112
#define XS      120
#define W       128
#define BIAS    136
#define D       144
#define BUF     152
#define INDEX   168
#define CSTRIDE 184
#define STEPS   192
#define GROUPS  200
#define AHEAD   208
#define LEFT    216
#define PSTEP   232
#define BLOCKS  240
#define COUNT   248
#define WSTEP   256
#define BUFSTEP 264
#define SSTRIDE 272
#define SGROUPS 280
#define ELEMENTS   288
#define AHEADBYTES 296

// Offsets in quantBlock.
#define BLOCKA      0
#define BLOCKSCALES 8
#define BLOCKBIASES 16
#define BLOCKC      24
#define BLOCKNEXT   32
#define BLOCKSIZE   40

// SPLIT(from, to) unpacks 64 numbers of 4 bits: the low halves of 32 bytes, then
// the high ones.
#define SPLIT(from, to) \
	VBROADCASTI64X4 from, to; \
	VPSRLVW Z25, to, to; \
	VPANDD Z24, to, to

// SPLIT4 unpacks twice as many to memory.
#define SPLIT4(from0, from1, to0, to1) \
	SPLIT(from0, Z16); \
	SPLIT(from1, Z17); \
	VMOVDQU32 Z16, to0; \
	VMOVDQU32 Z17, to1

// SCALES16(off, dst): the f16 of 16 outs at AX+off, widened.
#define SCALES16(off, dst) \
	KXNORW K0, K0, K1; \
	VPGATHERDD off(AX)(Z28*1), K1, Z16; \
	VPMOVDW Z16, Y16; \
	VCVTPH2PS Y16, dst

// SCALES4 widens the f16 at the start of four blocks of that size, of the 16
// rows from AX, to [4, 16] at DX.
#define SCALES4(size) \
	SCALES16(0, Z17); \
	VMOVUPS Z17, (DX); \
	SCALES16(size, Z17); \
	VMOVUPS Z17, 64(DX); \
	SCALES16((2*size), Z17); \
	VMOVUPS Z17, 128(DX); \
	SCALES16((3*size), Z17); \
	VMOVUPS Z17, 192(DX)

// SCALES4K sets scales and negative minima of the 8 sub-blocks of a Q4_K block
// of each of the 16 rows from AX, [8, 16] at DX and R14. Z18: d, Z19: -dmin,
// Z20, Z21, Z22: the three dwords of 6-bit numbers. Those of sub-blocks 4 to 7
// have their top 2 bits in the first two dwords, and nibbles in the third.
#define PAIR4K(off) \
	VPANDD Z26, Z20, Z16 \
	VCVTDQ2PS Z16, Z16 \
	VMULPS Z16, Z18, Z16 \
	VMOVUPS Z16, off(DX) \
	VPANDD Z26, Z21, Z16 \
	VCVTDQ2PS Z16, Z16 \
	VMULPS Z16, Z19, Z16 \
	VMOVUPS Z16, off(R14) \
	VPSRLD $2, Z20, Z16 \
	VPANDD Z29, Z16, Z16 \
	VPANDD Z27, Z22, Z17 \
	VPORD  Z17, Z16, Z16 \
	VCVTDQ2PS Z16, Z16 \
	VMULPS Z16, Z18, Z16 \
	VMOVUPS Z16, (off+256)(DX) \
	VPSRLD $2, Z21, Z16 \
	VPANDD Z29, Z16, Z16 \
	VPSRLD $4, Z22, Z17 \
	VPANDD Z27, Z17, Z17 \
	VPORD  Z17, Z16, Z16 \
	VCVTDQ2PS Z16, Z16 \
	VMULPS Z16, Z19, Z16 \
	VMOVUPS Z16, (off+256)(R14) \
	VPSRLD $8, Z20, Z20 \
	VPSRLD $8, Z21, Z21 \
	VPSRLD $8, Z22, Z22

#define SCALES4K \
	KXNORW K0, K0, K1 \
	VPGATHERDD (AX)(Z28*1), K1, Z17 \
	VPMOVDW Z17, Y18 \
	VCVTPH2PS Y18, Z18 \
	VPSRLD $16, Z17, Z17 \
	VPMOVDW Z17, Y19 \
	VCVTPH2PS Y19, Z19 \
	VPXORD Z16, Z16, Z16 \
	VSUBPS Z19, Z16, Z19 \
	KXNORW K0, K0, K1 \
	VPGATHERDD 4(AX)(Z28*1), K1, Z20 \
	KXNORW K0, K0, K1 \
	VPGATHERDD 8(AX)(Z28*1), K1, Z21 \
	KXNORW K0, K0, K1 \
	VPGATHERDD 12(AX)(Z28*1), K1, Z22 \
	PAIR4K(0) \
	PAIR4K(64) \
	PAIR4K(128) \
	PAIR4K(192)

// BYTE6(k, src, dst): scale k of 4 in the bytes of src, times d, to dst.
#define BYTE6(left, src, off) \
	VPSLLD $left, src, Z17; \
	VPSRAD $24, Z17, Z17; \
	VCVTDQ2PS Z17, Z17; \
	VMULPS Z17, Z22, Z17; \
	VMOVUPS Z17, off(DX)

// SCALES6K sets the scales of the 16 groups of a Q6_K block of each of the 16
// rows from AX, [16, 16] at DX. d is the high half of the block's last dword:
// nothing behind is read.
#define SCALES6K \
	KXNORW K0, K0, K1 \
	VPGATHERDD 206(AX)(Z28*1), K1, Z22 \
	VPSRLD $16, Z22, Z22 \
	VPMOVDW Z22, Y22 \
	VCVTPH2PS Y22, Z22 \
	KXNORW K0, K0, K1 \
	VPGATHERDD 192(AX)(Z28*1), K1, Z18 \
	KXNORW K0, K0, K1 \
	VPGATHERDD 196(AX)(Z28*1), K1, Z19 \
	KXNORW K0, K0, K1 \
	VPGATHERDD 200(AX)(Z28*1), K1, Z20 \
	KXNORW K0, K0, K1 \
	VPGATHERDD 204(AX)(Z28*1), K1, Z21 \
	BYTE6(24, Z18, 0) \
	BYTE6(16, Z18, 64) \
	BYTE6(8, Z18, 128) \
	BYTE6(0, Z18, 192) \
	BYTE6(24, Z19, 256) \
	BYTE6(16, Z19, 320) \
	BYTE6(8, Z19, 384) \
	BYTE6(0, Z19, 448) \
	BYTE6(24, Z20, 512) \
	BYTE6(16, Z20, 576) \
	BYTE6(8, Z20, 640) \
	BYTE6(0, Z20, 704) \
	BYTE6(24, Z21, 768) \
	BYTE6(16, Z21, 832) \
	BYTE6(8, Z21, 896) \
	BYTE6(0, Z21, 960)

// CONSTANTS sets what the format in R15 needs, and goes on at the label.
#define CONSTANTS(next) \
	MOVL $0x0F0F0F0F, AX \
	VPBROADCASTD AX, Z24 \
	MOVQ INDEX(R15), AX \
	VMOVDQU32 (AX), Z28 \
	MOVL $0xFF00, CX \
	KMOVD CX, K4 \
	MOVQ FORMAT(R15), AX \
	CMPQ AX, $1 \
	JB   next \
	JE   constantsSplit \
	CMPQ AX, $3 \
	JB   next \
	JE   constantsQ40 \
	CMPQ AX, $4 \
	JE   constantsQ4K \
	MOVL $0xFFFF0000, CX \
	KMOVD CX, K2 \
	MOVL $2, CX \
	VPBROADCASTW.Z CX, K2, Z25 \
	MOVL $4, CX \
	VPBROADCASTW CX, Z26 \
	MOVL $2, CX \
	VPBROADCASTW CX, K2, Z26 \
	MOVL $0x30303030, CX \
	VPBROADCASTD CX, Z27 \
	MOVL $0x20202020, CX \
	VPBROADCASTD CX, Z29 \
	JMP  next \
constantsQ4K: \
	MOVL $0xFFFF0000, CX \
	KMOVD CX, K2 \
	MOVL $4, CX \
	VPBROADCASTW.Z CX, K2, Z25 \
	MOVL $0x3F, CX \
	VPBROADCASTD CX, Z26 \
	MOVL $0x0F, CX \
	VPBROADCASTD CX, Z27 \
	MOVL $0x30, CX \
	VPBROADCASTD CX, Z29 \
	JMP  next \
constantsSplit: \
	MOVL $0xFFFF0000, CX \
	KMOVD CX, K2 \
	MOVL $4, CX \
	VPBROADCASTW.Z CX, K2, Z25 \
	JMP  next \
constantsQ40: \
	MOVL $0xFF00FF00, CX \
	KMOVD CX, K2 \
	MOVL $4, CX \
	VPBROADCASTW.Z CX, K2, Z25 \
	MOVL $0x08080808, CX \
	VPBROADCASTD CX, Z29

// SCALESAHEAD prefetches the scales and biases of the block behind the one at
// R14, if there is one, and goes on at the label.
#define SCALESAHEAD(line, row, next) \
	CMPQ COUNT(R15), $1; \
	JE   next; \
	MOVQ (BLOCKSIZE+BLOCKSCALES)(R14), SI; \
	MOVQ (BLOCKSIZE+BLOCKBIASES)(R14), DI; \
	MOVQ SSTRIDE(R15), BX; \
	MOVQ OUTS(R15), CX; \
row: \
	MOVQ SGROUPS(R15), DX; \
	XORQ AX, AX; \
line: \
	PREFETCHT0 (SI)(AX*1); \
	PREFETCHT0 (DI)(AX*1); \
	ADDQ $64, AX; \
	SUBQ $32, DX; \
	JG   line; \
	ADDQ BX, SI; \
	ADDQ BX, DI; \
	DECQ CX; \
	JNZ  row
