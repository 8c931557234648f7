#include "textflag.h"

// func pause()
TEXT ·pause(SB), NOSPLIT, $0-0
	MOVL $10, AX
again:
	PAUSE
	DECL AX
	JNZ  again
	RET
