// What is done to each number by itself between two products.

constexpr float kLog2E = 1.44269504f;

// To an absolute error of about 1e-7.
INLINE F16 tanh_of(F16 x) {
    const F16 one = all(1.0f);
    return one - all(2.0f) / (one + power2(x * all(2.0f * kLog2E)));
}

// cap * tanh(x / cap)
INLINE F16 capped(F16 x, float cap) { return tanh_of(x / all(cap)) * all(cap); }

// gate / (1 + e^-gate) * up
INLINE F16 silu_times(F16 gate, F16 up) {
    const F16 one = all(1.0f);
    return gate / (one + power2(gate * all(-kLog2E))) * up;
}
