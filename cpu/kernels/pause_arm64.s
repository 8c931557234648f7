#include "textflag.h"

// func Pause()
TEXT ·Pause(SB), NOSPLIT, $0-0
	MOVD $30, R0

again:
	YIELD
	SUB  $1, R0
	CBNZ R0, again
	RET
