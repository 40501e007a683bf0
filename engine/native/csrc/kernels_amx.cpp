// The kernels for processors with AMX-BF16 beside AVX-512: those of AVX-512, but for the products of bf16. The
// rules of kernels_avx512.cpp hold here too.
#include <immintrin.h>

#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))

namespace noria {
namespace amx {
#include "vec_avx512.h"
#include "lanes.h"
#include "activations.h"
#include "gemm.h"
#include "gemm_change.h"
#include "tiles_amx.h"
#include "tiles_emulated.h"
#include "gemm_tiles.h"

template <class Tiles>
Kernels table() {
    Kernels kernels = avx512_kernels(false);
    kernels.multiply = &multiply_by_tiles<Tiles>;
    return kernels;
}
}  // namespace amx

const Kernels& amx_kernels(bool float32) {
    static const Kernels bf16_kernels = amx::table<amx::AmxTiles>();
    return float32 ? avx512_kernels(true) : bf16_kernels;
}

const Kernels& emulated_amx_kernels(bool float32) {
    static const Kernels bf16_kernels = amx::table<amx::EmulatedTiles>();
    return float32 ? avx512_kernels(true) : bf16_kernels;
}

}  // namespace noria
