// Instructions for quantised weights that Go's assembler has no name for.
// Arguments are register numbers in Go's order, as in macros_neon_arm64.h.

// Vd.4S += four products of signed bytes each; of bytes 8i..8i+7 of Vn with 8j..
// of Vm, to lane 2i + j.
#define SDOT(m, n, d) WORD $(0x4E809400 | (m)<<16 | (n)<<5 | (d)) // SDOT Vd.4S, Vn.16B, Vm.16B
#define SMMLA(m, n, d) WORD $(0x4E80A400 | (m)<<16 | (n)<<5 | (d)) // SMMLA Vd.4S, Vn.16B, Vm.16B

#define UMAX4S(m, n, d) WORD $(0x6EA06400 | (m)<<16 | (n)<<5 | (d)) // UMAX Vd.4S, Vn.4S, Vm.4S
#define UMAXV4S(n, d) WORD $(0x6EB0A800 | (n)<<5 | (d)) // UMAXV Sd, Vn.4S
#define SQXTN4H(n, d) WORD $(0x0E614800 | (n)<<5 | (d)) // SQXTN Vd.4H, Vn.4S
#define SQXTN28H(n, d) WORD $(0x4E614800 | (n)<<5 | (d)) // SQXTN2 Vd.8H, Vn.4S
#define SQXTN8B(n, d) WORD $(0x0E214800 | (n)<<5 | (d)) // SQXTN Vd.8B, Vn.8H
#define SQXTN216B(n, d) WORD $(0x4E214800 | (n)<<5 | (d)) // SQXTN2 Vd.16B, Vn.8H
#define SXTL28H(n, d) WORD $(0x4F08A400 | (n)<<5 | (d)) // SXTL2 Vd.8H, Vn.16B
#define UCVTF4S(n, d) WORD $(0x6E21D800 | (n)<<5 | (d)) // UCVTF Vd.4S, Vn.4S
#define FMLA4S(m, n, d) WORD $(0x4E20CC00 | (m)<<16 | (n)<<5 | (d)) // FMLA Vd.4S, Vn.4S, Vm.4S

// Vd = Vn · Vm[i]
#define FMULE0(m, n, d) WORD $(0x4F809000 | (m)<<16 | (n)<<5 | (d)) // FMUL Vd.4S, Vn.4S, Vm.S[0]
#define FMULE1(m, n, d) WORD $(0x4FA09000 | (m)<<16 | (n)<<5 | (d)) // FMUL Vd.4S, Vn.4S, Vm.S[1]
#define FMULE2(m, n, d) WORD $(0x4F809800 | (m)<<16 | (n)<<5 | (d)) // FMUL Vd.4S, Vn.4S, Vm.S[2]
#define FMULE3(m, n, d) WORD $(0x4FA09800 | (m)<<16 | (n)<<5 | (d)) // FMUL Vd.4S, Vn.4S, Vm.S[3]
