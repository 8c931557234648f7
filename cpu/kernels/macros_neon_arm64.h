// NEON instructions that Go's assembler has no name for. Arguments are register
// numbers in Go's order: sources, the second operand first, then destination.

#define FADD4S(m, n, d) WORD $(0x4E20D400 | (m)<<16 | (n)<<5 | (d)) // FADD Vd.4S, Vn.4S, Vm.4S
#define FSUB4S(m, n, d) WORD $(0x4EA0D400 | (m)<<16 | (n)<<5 | (d)) // FSUB Vd.4S, Vn.4S, Vm.4S
#define FMUL4S(m, n, d) WORD $(0x6E20DC00 | (m)<<16 | (n)<<5 | (d)) // FMUL Vd.4S, Vn.4S, Vm.4S
#define FDIV4S(m, n, d) WORD $(0x6E20FC00 | (m)<<16 | (n)<<5 | (d)) // FDIV Vd.4S, Vn.4S, Vm.4S
#define FMAX4S(m, n, d) WORD $(0x4E20F400 | (m)<<16 | (n)<<5 | (d)) // FMAX Vd.4S, Vn.4S, Vm.4S; NaN if either is
#define FMIN4S(m, n, d) WORD $(0x4EA0F400 | (m)<<16 | (n)<<5 | (d)) // FMIN Vd.4S, Vn.4S, Vm.4S; NaN if either is
#define FADDP4S(m, n, d) WORD $(0x6E20D400 | (m)<<16 | (n)<<5 | (d)) // FADDP Vd.4S, Vn.4S, Vm.4S
#define FCMEQ4S(m, n, d) WORD $(0x4E20E400 | (m)<<16 | (n)<<5 | (d)) // FCMEQ Vd.4S, Vn.4S, Vm.4S
#define FMAXV4S(n, d) WORD $(0x6E30F800 | (n)<<5 | (d)) // FMAXV Sd, Vn.4S
#define FNEG4S(n, d) WORD $(0x6EA0F800 | (n)<<5 | (d)) // FNEG Vd.4S, Vn.4S
#define FRINTN4S(n, d) WORD $(0x4E218800 | (n)<<5 | (d)) // FRINTN Vd.4S, Vn.4S
#define FCVTNS4S(n, d) WORD $(0x4E21A800 | (n)<<5 | (d)) // FCVTNS Vd.4S, Vn.4S
#define SCVTF4S(n, d) WORD $(0x4E21D800 | (n)<<5 | (d)) // SCVTF Vd.4S, Vn.4S
#define FCVTL4S(n, d) WORD $(0x0E217800 | (n)<<5 | (d)) // FCVTL Vd.4S, Vn.4H
#define FCVTL24S(n, d) WORD $(0x4E217800 | (n)<<5 | (d)) // FCVTL2 Vd.4S, Vn.8H
#define SXTL8H(n, d) WORD $(0x0F08A400 | (n)<<5 | (d)) // SXTL Vd.8H, Vn.8B
#define SXTL4S(n, d) WORD $(0x0F10A400 | (n)<<5 | (d)) // SXTL Vd.4S, Vn.4H
#define SXTL24S(n, d) WORD $(0x4F10A400 | (n)<<5 | (d)) // SXTL2 Vd.4S, Vn.8H
#define HALVE4S(n, d) WORD $(0x4F3F0400 | (n)<<5 | (d)) // SSHR Vd.4S, Vn.4S, #1

// Vd += Vn · Vm[0..3]
#define FMLA0(m, n, d) WORD $(0x4F801000 | (m)<<16 | (n)<<5 | (d)) // FMLA Vd.4S, Vn.4S, Vm.S[0]
#define FMLA1(m, n, d) WORD $(0x4FA01000 | (m)<<16 | (n)<<5 | (d)) // FMLA Vd.4S, Vn.4S, Vm.S[1]
#define FMLA2(m, n, d) WORD $(0x4F801800 | (m)<<16 | (n)<<5 | (d)) // FMLA Vd.4S, Vn.4S, Vm.S[2]
#define FMLA3(m, n, d) WORD $(0x4FA01800 | (m)<<16 | (n)<<5 | (d)) // FMLA Vd.4S, Vn.4S, Vm.S[3]

#define ZERO(v) VEOR v.B16, v.B16, v.B16

// SUM4 sets Vd to the lane sums of Va, Vb, Vc, Vd, each (l0+l1)+(l2+l3); it
// destroys Va and Vc. Every dot product ends in this tree.
#define SUM4(a, b, c, d) \
	FADDP4S(b, a, a) \
	FADDP4S(d, c, c) \
	FADDP4S(c, a, d)
