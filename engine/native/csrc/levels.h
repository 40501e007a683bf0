// Instruction sets: which of them this processor and system allow, and the kernels of each.
#pragma once

#include "kernels.h"

namespace noria {

enum Level { kNone, kAvx2, kAvx512, kAmx, kEmulatedAmx };

// The highest up to kAmx that may run here. Asks the system for the use of AMX, for the whole process.
Level best_level();
const Kernels& kernels_of(Level level, bool float32);
// How far products of `level` lie from those of AVX-512 on drawn numbers, beside their size; not a number
// where one of them is none.
float disagreement(Level level);

}  // namespace noria
