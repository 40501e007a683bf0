// From a row of logits to the shares that a token is drawn by.

constexpr float kNever = -__builtin_huge_valf();
constexpr float kNothing = 1.2e-38f;  // power2 gives at least so little
constexpr float kLog2OfE = 1.44269504f;

inline float highest_of(const float* x, int n) {
    F16 most = all(kNever);
    int i = 0;
    for (; i + 16 <= n; i += 16) most = larger(load(x + i), most);
    if (i < n) most = larger(keep(load_part(x + i, n - i), 0, n - i, most), most);
    return highest(most);
}

// Values become e^x of x = (value - top) / temperature where that is at least `least`, 0 elsewhere.
inline void share_out(float* x, int n, const Shares& of) {
    const F16 top = all(of.top), temperature = all(of.temperature), scale = all(kLog2OfE);
    for (int first = 0; first < n; first += kGroup) {
        const int end = first + kGroup < n ? first + kGroup : n;
        alignas(64) float part[kGroup];
        for (int i = first; i < end; i += 16) {
            const int left = end - i < 16 ? end - i : 16;
            store(part + i - first, ((left == 16 ? load(x + i) : load_part(x + i, left)) - top) / temperature);
        }
        for (int i = 0; i < end - first; ++i) part[i] = part[i] >= of.least ? part[i] : kNever;
        for (int i = 0; i < end - first; i += 16) store(part + i, power2(load(part + i) * scale));
        for (int i = 0; i < end - first; ++i) x[first + i] = part[i] > kNothing ? part[i] : 0.0f;
    }
}

// Shares below `least` become 0.
inline void drop_below(float* shares, int n, float least) {
    for (int i = 0; i < n; ++i) shares[i] = shares[i] >= least ? shares[i] : 0.0f;
}

// Of every kShareSum of n values; returns the sum of all.
inline double sum_up(const float* x, int n, double* sums) {
    double total = 0.0;
    for (int first = 0; first < n; first += kShareSum) {
        const int end = first + kShareSum < n ? first + kShareSum : n;
        F16 part = all(0.0f);
        int i = first;
        for (; i + 16 <= end; i += 16) part = part + load(x + i);
        if (i < end) part = part + load_part(x + i, end - i);
        total += sums[first / kShareSum] = sum(part);
    }
    return total;
}
