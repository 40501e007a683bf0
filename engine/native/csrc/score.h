// What a row of logits says of one token and of the likeliest, by the log of its softmax.

// Log of the sum of e^x over n values, of which `top` is the highest; not a number where one is not finite.
// Sums are taken stretch by stretch, so that they lose nothing to their length.
inline double log_sum(const float* x, int n, float top) {
    const F16 scale = all(kLog2OfE), highest_value = all(top), zero = all(0.0f);
    F16 odd = zero;
    double total = 0.0;
    for (int first = 0; first < n; first += kStretch) {
        const int end = first + kStretch < n ? first + kStretch : n;
        F16 part = zero;
        for (int i = first; i < end; i += 16) {
            const int left = end - i < 16 ? end - i : 16;
            const F16 value = left == 16 ? load(x + i) : load_part(x + i, left);
            odd = multiply_add(value, zero, odd);
            const F16 share = power2((value - highest_value) * scale);
            part = part + (left == 16 ? share : keep(share, 0, left, zero));
        }
        total += sum(part);
    }
    return sum(odd) != 0.0f ? __builtin_nan("") : top + __builtin_log(total);
}

// Places of the `count` highest of n values, best first, the first of several that are equal.
inline void likeliest(const float* x, int n, int count, int32_t* places, float* values) {
    int held = 0;
    for (int first = 0; count > 0 && first < n; first += kGroup) {
        const int end = first + kGroup < n ? first + kGroup : n;
        if (held == count && highest_of(x + first, end - first) <= values[count - 1]) continue;
        for (int i = first; i < end; ++i) {
            if (held == count && !(x[i] > values[count - 1])) continue;
            int place = held < count ? held++ : count - 1;
            for (; place > 0 && x[i] > values[place - 1]; --place)
                places[place] = places[place - 1], values[place] = values[place - 1];
            places[place] = i, values[place] = x[i];
        }
    }
}

inline void score(const float* x, int n, int token, const Score& out) {
    const double log_total = log_sum(x, n, highest_of(x, n));
    const float own = x[token];
    int likelier = 0;
    for (int i = 0; i < n; ++i) likelier += x[i] > own;
    *out.logprob = static_cast<float>(own - log_total);
    *out.rank = 1 + likelier;
    likeliest(x, n, out.top, out.top_ids, out.top_logprobs);
    for (int i = 0; i < out.top; ++i) out.top_logprobs[i] = static_cast<float>(out.top_logprobs[i] - log_total);
}
