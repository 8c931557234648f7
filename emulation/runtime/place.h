// Places in the source, for the checker's messages.
#pragma once
#ifdef CHECKED
#include <string>

#include "executor.h"

namespace emulator::check {

// image_of is the loaded library that a symbol is in.
Range image_of(const void *symbol);
// here is the running lane's last place in the source, as a pointer that place knows.
const void *here();
// place names the source line of an instruction, by what comes after it, or of what here gave.
std::string place(const void *from);

} // namespace emulator::check
#endif
