// Sixteen float lanes with AVX-512, and the inner product step of this instruction set.
// Included into a namespace of its own by kernels_avx512.cpp.

struct F16 {
    __m512 v;
};

INLINE F16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
INLINE void store(float* p, F16 x) { _mm512_storeu_ps(p, x.v); }
INLINE F16 load(const bf16* p) {
    const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16))};
}
INLINE void store(bf16* p, F16 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x.v));
}
INLINE F16 load_part(const float* p, int n) { return {_mm512_maskz_loadu_ps((1u << n) - 1, p)}; }
INLINE void store_part(float* p, F16 x, int n) { _mm512_mask_storeu_ps(p, (1u << n) - 1, x.v); }

INLINE F16 all(float x) { return {_mm512_set1_ps(x)}; }
INLINE F16 operator+(F16 a, F16 b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE F16 operator-(F16 a, F16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE F16 operator*(F16 a, F16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
INLINE F16 operator/(F16 a, F16 b) { return {_mm512_div_ps(a.v, b.v)}; }
INLINE F16 multiply_add(F16 a, F16 b, F16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// Where b is not a number the result is b.
INLINE F16 larger(F16 a, F16 b) { return {_mm512_max_ps(a.v, b.v)}; }
INLINE F16 smaller(F16 a, F16 b) { return {_mm512_min_ps(a.v, b.v)}; }
INLINE float sum(F16 x) { return _mm512_reduce_add_ps(x.v); }
INLINE float highest(F16 x) { return _mm512_reduce_max_ps(x.v); }
// Lanes low .. high - 1 of x, `other` elsewhere.
INLINE F16 keep(F16 x, int low, int high, F16 other) {
    const __mmask16 mask = ((1u << high) - 1) & ~((1u << low) - 1);
    return {_mm512_mask_blend_ps(mask, other.v, x.v)};
}
// x split into its nearest whole number and the rest.
INLINE F16 nearest(F16 x) { return {_mm512_roundscale_ps(x.v, 0)}; }
INLINE F16 times_power_of_two(F16 x, F16 exponent) { return {_mm512_scalef_ps(x.v, exponent.v)}; }

// Terms of one step of a sum that runs along a row.
template <class T>
constexpr int kSpan = 16;
template <>
constexpr int kSpan<bf16> = 32;

INLINE F16 add_products(F16 sums, const bf16* x, const bf16* w) {
    const __m512i row = _mm512_loadu_si512(x), column = _mm512_loadu_si512(w);
    return {_mm512_dpbf16_ps(sums.v, (__m512bh)row, (__m512bh)column)};
}
INLINE F16 add_products(F16 sums, const float* x, const float* w) { return multiply_add(load(x), load(w), sums); }

constexpr int kRows = 12;  // rows of one run of the inner loop, and
constexpr int kWidth = 2;  // its columns, in vectors: 24 sums in registers

template <int M, int N>
INLINE void step(F16 (&sums)[M][N], const bf16* x, long stride, const bf16* const (&w)[N]) {
    __m512i column[N];
    for (int n = 0; n < N; ++n) column[n] = _mm512_loadu_si512(w[n]);
    for (int m = 0; m < M; ++m) {
        int32_t pair;
        __builtin_memcpy(&pair, x + m * stride, 4);
        const __m512i row = _mm512_set1_epi32(pair);
        for (int n = 0; n < N; ++n)
            sums[m][n].v = _mm512_dpbf16_ps(sums[m][n].v, (__m512bh)row, (__m512bh)column[n]);
    }
}

template <int M, int N>
INLINE void step(F16 (&sums)[M][N], const float* x, long stride, const float* const (&w)[N]) {
    F16 column[N];
    for (int n = 0; n < N; ++n) column[n] = load(w[n]);
    for (int m = 0; m < M; ++m) {
        const F16 row = all(x[m * stride]);
        for (int n = 0; n < N; ++n) sums[m][n] = multiply_add(row, column[n], sums[m][n]);
    }
}
