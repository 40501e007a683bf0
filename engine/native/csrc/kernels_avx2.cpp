// The kernels for processors with AVX2 and FMA. The rules of kernels_avx512.cpp hold here too.
#include <immintrin.h>

#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))

namespace noria {
namespace avx2 {
#include "vec_avx2.h"
#include "int8_avx2.h"
#include "body.h"
}  // namespace avx2

const Kernels& avx2_kernels(bool float32) { return float32 ? avx2::kFloat : avx2::kBf16; }

}  // namespace noria
