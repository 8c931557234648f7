#include "textflag.h"
#include "macros_neon_arm64.h"
#include "quant_macros_arm64.h"

// For SDOT: 16 elements of output 0, of output 1, and so on.
#define PAIR 32
#define EMIT(v, f, w, g, u) FSTPQ (f, g), (128*(u))(R2)

#define DECODEBYTES ·decodeBytesDot
#define DECODEAFFINE4 ·decodeAffine4Dot
#define DECODEQ80 ·decodeQ80Dot
#define DECODEQ40 ·decodeQ40Dot
#define DECODEQ4K ·decodeQ4KDot
#define DECODEQ6K ·decodeQ6KDot
#define DECODEQ5K ·decodeQ5KDot
#include "quant_decode_arm64.h"
