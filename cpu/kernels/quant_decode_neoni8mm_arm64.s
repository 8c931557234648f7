#include "textflag.h"
#include "macros_neon_arm64.h"
#include "quant_macros_arm64.h"

// For SMMLA: 8 elements of outputs 0 and 1, of 2 and 3, and so on, then the next 8
// of each.
#define PAIR 16
#define EMIT(v, f, w, g, u) \
	VZIP1 w.D2, v.D2, V28.D2 \
	VZIP2 w.D2, v.D2, V29.D2 \
	FMOVQ F28, (128*(u))(R2) \
	FMOVQ F29, (128*(u)+64)(R2)

#define DECODEBYTES ·decodeBytesMmla
#define DECODEAFFINE4 ·decodeAffine4Mmla
#define DECODEQ80 ·decodeQ80Mmla
#define DECODEQ40 ·decodeQ40Mmla
#define DECODEQ4K ·decodeQ4KMmla
#define DECODEQ6K ·decodeQ6KMmla
#define DECODEQ5K ·decodeQ5KMmla
#include "quant_decode_arm64.h"
