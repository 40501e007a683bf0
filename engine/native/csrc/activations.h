// What is done to each number by itself between two products.

constexpr float kLog2E = 1.44269504f;

// To an absolute error of about 1e-7.
INLINE F16 tanh_of(F16 x) {
    const F16 one = all(1.0f);
    return one - all(2.0f) / (one + power2(x * all(2.0f * kLog2E)));
}

// cap * tanh(x / cap)
INLINE F16 capped(F16 x, float cap) { return tanh_of(x / all(cap)) * all(cap); }

// x / (1 + e^-x)
INLINE F16 silu(F16 x) { return x / (all(1.0f) + power2(x * all(-kLog2E))); }

INLINE F16 relu(F16 x) { return larger(all(0.0f), x); }

// x times the share of the normal distribution below it: Abramowitz and Stegun 7.1.26, to 1e-7 of it.
INLINE F16 gelu(F16 x) {
    const F16 size = larger(x, all(0.0f) - x), z = size * all(0.70710678f);
    const F16 t = all(1.0f) / multiply_add(z, all(0.3275911f), all(1.0f));
    F16 sum = all(1.061405429f);
    sum = multiply_add(sum, t, all(-1.453152027f));
    sum = multiply_add(sum, t, all(1.421413741f));
    sum = multiply_add(sum, t, all(-0.284496736f));
    sum = multiply_add(sum, t, all(0.254829592f));
    const F16 beyond = sum * t * power2(z * z * all(-kLog2E)) * all(0.5f);
    return relu(x) - size * beyond;
}

// The same by tanh(sqrt(2 / pi) (x + 0.044715 x^3)), as models are trained with.
INLINE F16 gelu_tanh(F16 x) {
    const F16 inner = x * multiply_add(x * x, all(0.044715f), all(1.0f));
    return x / (all(1.0f) + power2(inner * all(-2.0f * 0.79788456f * kLog2E)));
}

INLINE F16 activated(Activation activation, F16 x) {
    switch (activation) {
        case Activation::kSilu: return silu(x);
        case Activation::kRelu: return relu(x);
        case Activation::kGelu: return gelu(x);
        default: return gelu_tanh(x);
    }
}

template <class T>
void gate(const Gate& g, const float* x, int panels, void* out) {
    T* to = static_cast<T*>(out);
    for (int panel = 0; panel < panels; ++panel, x += kPanel, to += g.columns()) {
        const F16 first = activated(g.activation, load(x)), second = load(x + 16);
        if (g.gated) {
            store(to, first * second);
        } else {
            store(to, first);
            store(to + 16, activated(g.activation, second));
        }
    }
}

static void cap(float* x, int count, float limit) {
    for (int i = 0; i < count; i += 16) {
        const int left = count - i < 16 ? count - i : 16;
        store_part(x + i, capped(load_part(x + i, left), limit), left);
    }
}
