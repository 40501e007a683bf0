// From row-major weights to panels.
#pragma once

#include "kernels.h"

namespace noria {

// source [n, k] into a panel matrix `width` columns wide with terms for `padded_k` of them: row j becomes
// column first + j / 16 * pitch + j % 16. Both are of the same element type; `to` was zero before.
void pack(bool float32, const void* source, int n, int k, void* to, int width, int padded_k, int first, int pitch);

// count numbers, as floats.
void widen(bool float32, const void* source, int count, float* to);

}  // namespace noria
