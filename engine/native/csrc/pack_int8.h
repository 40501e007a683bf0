// From row-major weights to panels in int8, a scale for each row.
#pragma once

#include "kernels.h"
#include "team.h"

namespace noria {

// source [n, k], bf16 or float, becomes columns of `to`: row j column first + j / 16 * pitch + j % 16.
struct Int8Packing {
    bool float32;
    const void* source;
    int n, k;
    const Matrix* to;
    int first, pitch;
};

void pack_int8(const Int8Packing& packing);

// The same by all threads of the team.
void pack_int8(const Int8Packing& packing, Team& team);

}  // namespace noria
