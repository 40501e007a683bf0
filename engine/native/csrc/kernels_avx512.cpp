// The kernels for processors with AVX-512 F, BW, DQ, VL, BF16 and VNNI. Compiled with those instructions on, so
// nothing here may be reached before the processor has been asked, and nothing here may define a symbol
// that another file shares: hence no standard library beyond <cstdint>.
#include <immintrin.h>

#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))

namespace noria {
namespace avx512 {
#include "vec_avx512.h"
#include "int8_avx512.h"
#include "body.h"
}  // namespace avx512

const Kernels& avx512_kernels(bool float32) { return float32 ? avx512::kFloat : avx512::kBf16; }

}  // namespace noria
