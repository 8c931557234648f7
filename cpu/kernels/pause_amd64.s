#include "textflag.h"

// func Pause()
TEXT ·Pause(SB), NOSPLIT, $0-0
	MOVL $10, AX
again:
	PAUSE
	DECL AX
	JNZ  again
	RET
