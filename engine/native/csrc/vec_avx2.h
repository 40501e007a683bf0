// Sixteen float lanes with AVX2 and FMA, and the inner product step of this instruction set: bf16 operands
// are widened and multiplied in float32. Included into a namespace of its own by kernels_avx2.cpp.

struct F16 {
    __m256 lo, hi;
};

INLINE F16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void store(float* p, F16 x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
}
INLINE __m256 widen(__m128i raw) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
}
INLINE F16 load(const bf16* p) {
    const auto* raw = reinterpret_cast<const __m128i*>(p);
    return {widen(_mm_loadu_si128(raw)), widen(_mm_loadu_si128(raw + 1))};
}
// To nearest, ties to even; what is not a number stays so.
INLINE __m256i narrowed(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256i safe = _mm256_blendv_epi8(sum, _mm256_set1_epi32(0x7fc00000), _mm256_castps_si256(nan));
    return _mm256_srli_epi32(safe, 16);
}
INLINE void store(bf16* p, F16 x) {
    const __m256i packed = _mm256_packus_epi32(narrowed(x.lo), narrowed(x.hi));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
INLINE F16 load_part(const float* p, int n) {
    alignas(32) float whole[16] = {};
    for (int i = 0; i < n; ++i) whole[i] = p[i];
    return load(whole);
}
INLINE void store_part(float* p, F16 x, int n) {
    alignas(32) float whole[16];
    store(whole, x);
    for (int i = 0; i < n; ++i) p[i] = whole[i];
}

INLINE F16 all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE F16 operator+(F16 a, F16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
INLINE F16 operator-(F16 a, F16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
INLINE F16 operator*(F16 a, F16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
INLINE F16 operator/(F16 a, F16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
INLINE F16 multiply_add(F16 a, F16 b, F16 c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
// Where b is not a number the result is b.
INLINE F16 larger(F16 a, F16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
INLINE F16 smaller(F16 a, F16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
INLINE float sum(F16 x) {
    const __m256 eight = _mm256_add_ps(x.lo, x.hi);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
INLINE float highest(F16 x) {
    const __m256 eight = _mm256_max_ps(x.lo, x.hi);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
INLINE __m256 inside(int low, int high, __m256i lanes) {
    const __m256i over = _mm256_cmpgt_epi32(lanes, _mm256_set1_epi32(low - 1));
    return _mm256_castsi256_ps(_mm256_and_si256(over, _mm256_cmpgt_epi32(_mm256_set1_epi32(high), lanes)));
}
// Lanes low .. high - 1 of x, `other` elsewhere.
INLINE F16 keep(F16 x, int low, int high, F16 other) {
    const __m256i first = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i second = _mm256_add_epi32(first, _mm256_set1_epi32(8));
    return {_mm256_blendv_ps(other.lo, x.lo, inside(low, high, first)),
            _mm256_blendv_ps(other.hi, x.hi, inside(low, high, second))};
}
INLINE F16 nearest(F16 x) { return {_mm256_round_ps(x.lo, 8), _mm256_round_ps(x.hi, 8)}; }
INLINE __m256 power_of_two(__m256 whole) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
INLINE F16 times_power_of_two(F16 x, F16 exponent) {
    return {_mm256_mul_ps(x.lo, power_of_two(exponent.lo)), _mm256_mul_ps(x.hi, power_of_two(exponent.hi))};
}

// Terms of one step of a sum that runs along a row.
template <class T>
constexpr int kSpan = 16;

template <class T>
INLINE F16 add_products(F16 sums, const T* x, const T* w) {
    return multiply_add(load(x), load(w), sums);
}

constexpr int kRows = 4;   // rows of one run of the inner loop, and
constexpr int kWidth = 1;  // its columns, in pairs of registers

template <int M, int N>
INLINE void step(F16 (&sums)[M][N], const bf16* x, long stride, const bf16* const (&w)[N]) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    for (int n = 0; n < N; ++n) {
        const __m256i lo = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w[n]));
        const __m256i hi = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w[n]) + 1);
        const F16 even = {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
                          _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
        const F16 odd = {_mm256_castsi256_ps(_mm256_and_si256(lo, upper)),
                         _mm256_castsi256_ps(_mm256_and_si256(hi, upper))};
        for (int m = 0; m < M; ++m) {
            int32_t pair;
            __builtin_memcpy(&pair, x + m * stride, 4);
            const __m256i both = _mm256_set1_epi32(pair);
            const __m256 first = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
            const __m256 second = _mm256_castsi256_ps(_mm256_and_si256(both, upper));
            sums[m][n] = multiply_add(F16{first, first}, even, sums[m][n]);
            sums[m][n] = multiply_add(F16{second, second}, odd, sums[m][n]);
        }
    }
}

template <int M, int N>
INLINE void step(F16 (&sums)[M][N], const float* x, long stride, const float* const (&w)[N]) {
    for (int n = 0; n < N; ++n) {
        const F16 column = load(w[n]);
        for (int m = 0; m < M; ++m) sums[m][n] = multiply_add(all(x[m * stride]), column, sums[m][n]);
    }
}
