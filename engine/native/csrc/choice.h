// The likeliest token of a row of logits.

constexpr int kStretch = 512;  // logits that are searched again for the place of the highest

// Where the highest of n values stands, the first of several; -1 where one of them is not finite.
inline int best(const float* x, int n) {
    const float lowest = -__builtin_huge_valf();
    const F16 zero = all(0.0f);
    F16 odd = zero;  // not a number once a value was met that is not finite
    float top = lowest;
    int from = 0;
    for (int first = 0; first < n; first += kStretch) {
        const int end = first + kStretch < n ? first + kStretch : n;
        F16 most = all(lowest);
        for (int i = first; i < end; i += 16) {
            const int left = end - i < 16 ? end - i : 16;
            const F16 value = left == 16 ? load(x + i) : load_part(x + i, left);
            odd = multiply_add(value, zero, odd);
            most = larger(most, left == 16 ? value : keep(value, 0, left, most));
        }
        const float here = highest(most);
        if (here > top) {
            top = here;
            from = first;
        }
    }
    if (sum(odd) != 0.0f) return -1;
    while (x[from] != top) ++from;
    return from;
}
