#include "textflag.h"

// func pause()
TEXT ·pause(SB), NOSPLIT, $0-0
	MOVD $30, R0

again:
	YIELD
	SUB  $1, R0
	CBNZ R0, again
	RET
