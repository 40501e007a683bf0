// Small tools on top of the sixteen lanes: element types, powers, compile-time row counts.

template <int N>
struct Int {
    static constexpr int value = N;
};

// f(Int<n>) for n in 1 .. MAX, so that f's sums can live in registers.
template <int MAX, class F>
INLINE void with_rows(int n, F&& f) {
    if (n == MAX)
        f(Int<MAX>());
    else if constexpr (MAX > 1)
        with_rows<MAX - 1>(n, f);
}

// How T lies in a panel: `kPack` terms of a sum stand side by side in one 32-bit lane.
template <class T>
constexpr int kPack = sizeof(float) / sizeof(T);

INLINE float wide(float x) { return x; }
INLINE float wide(bf16 x) {
    const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}

// 2^x, to the last bit or so; 0 far below, infinite far above, not a number where x is none.
INLINE F16 power2(F16 x) {
    x = smaller(all(128.0f), larger(all(-126.0f), x));
    const F16 whole = smaller(all(127.0f), nearest(x));
    const F16 rest = x - whole;
    F16 sum = all(1.5252734e-5f);
    sum = multiply_add(sum, rest, all(1.5403530e-4f));
    sum = multiply_add(sum, rest, all(1.3333558e-3f));
    sum = multiply_add(sum, rest, all(9.6181291e-3f));
    sum = multiply_add(sum, rest, all(5.5504109e-2f));
    sum = multiply_add(sum, rest, all(2.4022651e-1f));
    sum = multiply_add(sum, rest, all(6.9314718e-1f));
    sum = multiply_add(sum, rest, all(1.0f));
    return times_power_of_two(sum, whole);
}
