// The Metal Shading Language as C++ for clang: what a kernel's source sees
// after ../rewrite.go has been over it. LINT compiles with real address spaces
// and runs nothing.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <limits>
#include <type_traits>

#include "checker.h"

#ifdef LINT // clang's numbers for a GPU's address spaces
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2))) const
#define threadgroup __attribute__((address_space(3)))
#else
#define device
#define constant const
#define threadgroup
#endif
#define thread
#define kernel
#define METAL_FUNC inline __attribute__((always_inline))
// Every operation that lanes do together takes its caller's place in the source.
#define MSL_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

#include "msl_types.h"
//
#include "msl_math.h"
//
#include "msl_threads.h"
//
#include "msl_matrix.h"
//
#include "msl_atomic.h"
//
#include "msl_entry.h"

#ifdef LINT
#pragma GCC poison double goto new delete throw try catch virtual dynamic_cast typeid thread_local printf malloc asm
#endif
