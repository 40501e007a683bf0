// From row-major weights to panels.
#pragma once

#include "kernels.h"
#include "team.h"

namespace noria {

// source [n, k] into a panel matrix `width` columns wide with terms for `padded_k` of them: row j becomes
// column first + j / 16 * pitch + j % 16. Both are of the same element type; `to` was zero before.
struct Packing {
    bool float32;
    const void* source;
    int n, k;
    void* to;
    int width, padded_k, first, pitch;
};

void pack(const Packing& packing);

// The same by all threads of the team.
void pack(const Packing& packing, Team& team);

// count numbers, as floats.
void widen(bool float32, const void* source, int count, float* to);

}  // namespace noria
