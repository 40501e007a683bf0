// Whole numbers in sixteen lanes with AVX2. Included behind vec_avx2.h.

struct Ints {
    __m256i lo, hi;
};

INLINE Ints load_ints(const int32_t* p) {
    const auto* raw = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(raw), _mm256_loadu_si256(raw + 1)};
}
INLINE Ints operator-(Ints a, Ints b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
INLINE F16 floats(Ints x) { return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)}; }

// What stands for zero in a quantised row.
constexpr int kZero = 0;

// Nearest whole numbers, ties to even; `zero` is added to each.
INLINE __m256i words_of(F16 x) {
    const __m256i pairs = _mm256_packs_epi32(_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi));
    return _mm256_permute4x64_epi64(pairs, 0xd8);
}
INLINE void store_bytes(void* p, F16 x, int zero) {
    const __m256i words = _mm256_add_epi16(words_of(x), _mm256_set1_epi16(static_cast<short>(zero)));
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(static_cast<__m128i*>(p), bytes);
}
INLINE void store_words(int16_t* p, F16 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words_of(x));
}
INLINE F16 load_bytes(const int8_t* p) {
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return floats(Ints{_mm256_cvtepi8_epi32(raw), _mm256_cvtepi8_epi32(_mm_srli_si128(raw, 8))});
}

// Lane i and lane i ^ distance become their sum and their difference.
template <int DISTANCE>
INLINE F16 butterfly(F16 x) {
    if constexpr (DISTANCE == 8) return {_mm256_add_ps(x.lo, x.hi), _mm256_sub_ps(x.lo, x.hi)};
    const auto half = [](__m256 v) __attribute__((always_inline)) {
        __m256 other;
        if constexpr (DISTANCE == 1) other = _mm256_permute_ps(v, 0xb1);
        if constexpr (DISTANCE == 2) other = _mm256_permute_ps(v, 0x4e);
        if constexpr (DISTANCE == 4) other = _mm256_permute2f128_ps(v, v, 1);
        constexpr int second = DISTANCE == 1 ? 0xaa : DISTANCE == 2 ? 0xcc : 0xf0;
        return _mm256_blend_ps(_mm256_add_ps(v, other), _mm256_sub_ps(other, v), second);
    };
    return {half(x.lo), half(x.hi)};
}

// Four terms a lane. Sums of two products of bytes fit 16 bits because no byte is below -127.
template <int M, int N>
INLINE void step(Ints (&sums)[M][N], const uint8_t* x, long stride, const int8_t* const (&w)[N]) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int n = 0; n < N; ++n) {
        const __m256i lo = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w[n]));
        const __m256i hi = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w[n]) + 1);
        for (int m = 0; m < M; ++m) {
            int32_t four;
            __builtin_memcpy(&four, x + m * stride, 4);
            const __m256i row = _mm256_set1_epi32(four), size = _mm256_abs_epi8(row);
            const auto products = [&](__m256i column) __attribute__((always_inline)) {
                return _mm256_madd_epi16(_mm256_maddubs_epi16(size, _mm256_sign_epi8(column, row)), ones);
            };
            sums[m][n].lo = _mm256_add_epi32(sums[m][n].lo, products(lo));
            sums[m][n].hi = _mm256_add_epi32(sums[m][n].hi, products(hi));
        }
    }
}

// Two terms a lane.
template <int M, int N>
INLINE void step(Ints (&sums)[M][N], const int16_t* x, long stride, const int8_t* const (&w)[N]) {
    for (int n = 0; n < N; ++n) {
        const auto* raw = reinterpret_cast<const __m128i*>(w[n]);
        const __m256i lo = _mm256_cvtepi8_epi16(_mm_loadu_si128(raw));
        const __m256i hi = _mm256_cvtepi8_epi16(_mm_loadu_si128(raw + 1));
        for (int m = 0; m < M; ++m) {
            int32_t pair;
            __builtin_memcpy(&pair, x + m * stride, 4);
            const __m256i row = _mm256_set1_epi32(pair);
            sums[m][n].lo = _mm256_add_epi32(sums[m][n].lo, _mm256_madd_epi16(row, lo));
            sums[m][n].hi = _mm256_add_epi32(sums[m][n].hi, _mm256_madd_epi16(row, hi));
        }
    }
}
