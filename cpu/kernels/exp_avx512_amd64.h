// The constants of exp: r = x - n·ln 2 with n = round(x·log2 e) and ln 2 in two
// parts, a polynomial of degree 7 (Cephes' minimax coefficients), times 2^n.
// Below -110 the result is 0 and above 89 it is +Inf, in f32.
DATA expTable<>+0(SB)/4, $-110.0
DATA expTable<>+4(SB)/4, $89.0
DATA expTable<>+8(SB)/4, $1.44269504088896341
DATA expTable<>+12(SB)/4, $0.693359375
DATA expTable<>+16(SB)/4, $-2.12194440e-4
DATA expTable<>+20(SB)/4, $1.9875691500e-4
DATA expTable<>+24(SB)/4, $1.3981999507e-3
DATA expTable<>+28(SB)/4, $8.3334519073e-3
DATA expTable<>+32(SB)/4, $4.1665795894e-2
DATA expTable<>+36(SB)/4, $1.6666665459e-1
DATA expTable<>+40(SB)/4, $5.0000001201e-1
DATA expTable<>+44(SB)/4, $1.0
GLOBL expTable<>(SB), RODATA|NOPTR, $48

#define EXPCONSTANTS \
	VBROADCASTSS expTable<>+0(SB), Z16;  \
	VBROADCASTSS expTable<>+4(SB), Z17;  \
	VBROADCASTSS expTable<>+8(SB), Z18;  \
	VBROADCASTSS expTable<>+12(SB), Z19; \
	VBROADCASTSS expTable<>+16(SB), Z20; \
	VBROADCASTSS expTable<>+20(SB), Z21; \
	VBROADCASTSS expTable<>+24(SB), Z22; \
	VBROADCASTSS expTable<>+28(SB), Z23; \
	VBROADCASTSS expTable<>+32(SB), Z24; \
	VBROADCASTSS expTable<>+36(SB), Z25; \
	VBROADCASTSS expTable<>+40(SB), Z26; \
	VBROADCASTSS expTable<>+44(SB), Z27

// CLAMP bounds x so that exp stays in its range; the clamped x is finite, which
// also keeps e·x from being 0·-Inf. A NaN stays (it is the second source).
#define CLAMP(x) \
	VMAXPS x, Z16, x; \
	VMINPS x, Z17, x

// EXP sets e to e^x of the clamped x; x and n are overwritten.
#define EXP(x, n, e) \
	VMULPS       Z18, x, n;  \
	VRNDSCALEPS  $8, n, n;   \
	VFNMADD231PS Z19, n, x;  \
	VFNMADD231PS Z20, n, x;  \
	VMOVAPS      Z21, e;     \
	VFMADD213PS  Z22, x, e;  \
	VFMADD213PS  Z23, x, e;  \
	VFMADD213PS  Z24, x, e;  \
	VFMADD213PS  Z25, x, e;  \
	VFMADD213PS  Z26, x, e;  \
	VFMADD213PS  Z27, x, e;  \
	VFMADD213PS  Z27, x, e;  \
	VSCALEFPS    n, e, e
