// Whole numbers in sixteen lanes with AVX-512 VNNI. Included behind vec_avx512.h.

struct Ints {
    __m512i v;
};

INLINE Ints load_ints(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
INLINE Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
INLINE F16 floats(Ints x) { return {_mm512_cvtepi32_ps(x.v)}; }

// What stands for zero in a quantised row: the instruction multiplies unsigned with signed bytes.
constexpr int kZero = 128;

// Nearest whole numbers, ties to even; `zero` is added to each.
INLINE void store_bytes(void* p, F16 x, int zero) {
    const __m512i shifted = _mm512_add_epi32(_mm512_cvtps_epi32(x.v), _mm512_set1_epi32(zero));
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(shifted));
}
INLINE void store_words(int16_t* p, F16 x) {
    const __m256i words = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x.v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
}
INLINE F16 load_bytes(const int8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

// Lane i and lane i ^ distance become their sum and their difference.
template <int DISTANCE>
INLINE F16 butterfly(F16 x) {
    __m512 other;
    if constexpr (DISTANCE == 1) other = _mm512_permute_ps(x.v, 0xb1);
    if constexpr (DISTANCE == 2) other = _mm512_permute_ps(x.v, 0x4e);
    if constexpr (DISTANCE == 4) other = _mm512_shuffle_f32x4(x.v, x.v, 0xb1);
    if constexpr (DISTANCE == 8) other = _mm512_shuffle_f32x4(x.v, x.v, 0x4e);
    constexpr __mmask16 second = DISTANCE == 1 ? 0xaaaa : DISTANCE == 2 ? 0xcccc : DISTANCE == 4 ? 0xf0f0 : 0xff00;
    return {_mm512_mask_sub_ps(_mm512_add_ps(x.v, other), second, other, x.v)};
}

// Four terms a lane.
template <int M, int N>
INLINE void step(Ints (&sums)[M][N], const uint8_t* x, long stride, const int8_t* const (&w)[N]) {
    __m512i column[N];
    for (int n = 0; n < N; ++n) column[n] = _mm512_loadu_si512(w[n]);
    for (int m = 0; m < M; ++m) {
        int32_t four;
        __builtin_memcpy(&four, x + m * stride, 4);
        const __m512i row = _mm512_set1_epi32(four);
        for (int n = 0; n < N; ++n) sums[m][n].v = _mm512_dpbusd_epi32(sums[m][n].v, row, column[n]);
    }
}

// Two terms a lane.
template <int M, int N>
INLINE void step(Ints (&sums)[M][N], const int16_t* x, long stride, const int8_t* const (&w)[N]) {
    __m512i column[N];
    for (int n = 0; n < N; ++n)
        column[n] = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w[n])));
    for (int m = 0; m < M; ++m) {
        int32_t pair;
        __builtin_memcpy(&pair, x + m * stride, 4);
        const __m512i row = _mm512_set1_epi32(pair);
        for (int n = 0; n < N; ++n) sums[m][n].v = _mm512_dpwssd_epi32(sums[m][n].v, row, column[n]);
    }
}
