// Work on single rows: embedding, norms, and a token's way into queries and cache.

template <class T>
INLINE void read_embedding(const Embed& e, int token, float* out) {
    if (e.own != nullptr || e.rows != nullptr) {
        const T* row = e.own != nullptr ? static_cast<const T*>(e.own)
                                        : static_cast<const T*>(e.rows) + static_cast<long>(token) * e.width;
        for (int i = 0; i < e.width; ++i) out[i] = wide(row[i]);
        return;
    }
    if (e.panels->int8) return embed_int8(*e.panels, token, e.width, out);
    // The head's weights serve as embedding too: one column of a panel.
    const T* column = reinterpret_cast<const T*>(e.panels->panel(token / kPanel)) + token % kPanel * kPack<T>;
    for (int i = 0; i < e.width; i += kPack<T>, column += kPanel * kPack<T>)
        for (int j = 0; j < kPack<T>; ++j) out[i + j] = wide(column[j]);
}

template <class T>
INLINE void change_embedding(const EmbedDelta& delta, int token, int width, float* row) {
    if (delta.gain != nullptr)
        for (int i = 0; i < width; ++i) row[i] *= delta.gain[i];
    const T* a = static_cast<const T*>(delta.a) + static_cast<long>(token) * delta.b.k;
    for (int panel = 0; panel < delta.b.panels; ++panel) expand<T>(delta.b, panel, a, 0, 1, row, 0, 16);
}

template <class T>
void embed(const Embed& e, int token, int place, float* out) {
    read_embedding<T>(e, token, out);
    if (e.delta != nullptr) change_embedding<T>(*e.delta, token, e.width, out);
    for (int i = 0; i < e.width; ++i) out[i] *= e.scale;
    if (e.places == nullptr) return;
    const T* row = static_cast<const T*>(e.places) + static_cast<long>(place) * e.width;
    for (int i = 0; i < e.width; ++i) out[i] += wide(row[i]);
}

INLINE F16 inverse_root(F16 squares, const Norm& norm) {
    return all(1.0f / __builtin_sqrtf(sum(squares) / norm.width + norm.eps));
}

// deliver(i, values i .. i + 15 of the normalised row). What lies behind the row's end is zero, and stays.
template <class F>
INLINE void over_rms(const Norm& norm, const float* x, F&& deliver) {
    F16 squares = all(0.0f);
    for (int i = 0; i < norm.padded; i += 16) squares = multiply_add(load(x + i), load(x + i), squares);
    const F16 inverse = inverse_root(squares, norm);
    for (int i = 0; i < norm.padded; i += 16) deliver(i, load(x + i) * inverse * load(norm.weight + i));
}

template <class F>
INLINE void over_deviation(const Norm& norm, const float* x, F&& deliver) {
    F16 total = all(0.0f), squares = all(0.0f);
    for (int i = 0; i < norm.padded; i += 16) total = total + load(x + i);
    const F16 mean = all(sum(total) / norm.width);
    for (int i = 0; i < norm.width; i += 16) {
        const int left = norm.width - i;
        const F16 apart = load(x + i) - mean, own = left >= 16 ? apart : keep(apart, 0, left, all(0.0f));
        squares = multiply_add(own, own, squares);
    }
    const F16 inverse = inverse_root(squares, norm);
    for (int i = 0; i < norm.padded; i += 16)
        deliver(i, multiply_add((load(x + i) - mean) * inverse, load(norm.weight + i), load(norm.bias + i)));
}

template <class T>
void normalise(const Norm& norm, const float* x, void* out) {
    const auto deliver = [&](int i, F16 value) { store(static_cast<T*>(out) + i, value); };
    if (norm.bias == nullptr)
        over_rms(norm, x, deliver);
    else
        over_deviation(norm, x, deliver);
}

static void add_normed(const Norm& norm, const float* x, float* y) {
    over_rms(norm, x, [&](int i, F16 value) { store(y + i, load(y + i) + value); });
}

static void add_share(const float* x, float share, int count, float* y) {
    for (int i = 0; i < count; i += 16) store(y + i, multiply_add(load(x + i), all(share), load(y + i)));
}

// One head, at most kMaxHeadDim long, in float32; zeros up to the padded length.
struct Head {
    alignas(64) float x[kMaxHeadDim];
};

INLINE void read_head(Head& head, const float* x, const Heads& h) {
    for (int i = 0; i < h.padded_dim; i += 16) {
        const int left = h.head_dim - i;
        store(head.x + i, left >= 16 ? load(x + i) : load_part(x + i, left));
    }
}

INLINE void norm_head(Head& head, const float* weight, const Heads& h) {
    F16 squares = all(0.0f);
    for (int i = 0; i < h.padded_dim; i += 16)
        squares = multiply_add(load(head.x + i), load(head.x + i), squares);
    const F16 inverse = all(1.0f / __builtin_sqrtf(sum(squares) / h.head_dim + h.eps));
    for (int i = 0; i < h.padded_dim; i += 16) {
        const int left = h.head_dim - i;
        const F16 w = left >= 16 ? load(weight + i) : load_part(weight + i, left);
        store(head.x + i, load(head.x + i) * inverse * w);
    }
}

INLINE void turn_head(Head& head, const Rotation& turn, const Heads& h) {
    const int half = h.turned / 2;
    for (int i = 0; i < half; i += 16) {
        const int n = half - i < 16 ? half - i : 16;
        const F16 c = load_part(turn.cos + i, n), s = load_part(turn.sin + i, n);
        const F16 a = load_part(head.x + i, n), b = load_part(head.x + half + i, n);
        store_part(head.x + i, a * c - b * s, n);
        store_part(head.x + half + i, b * c + a * s, n);
    }
}

template <class T>
INLINE void round_head(T* out, const Head& head, const Heads& h) {
    for (int i = 0; i < h.padded_dim; i += 16) store(out + i, load(head.x + i));
}

template <class T>
INLINE void prepare_queries(const Heads& h, const float* fused, const Rotation& turn, int kv_head, T* queries) {
    const int group = h.heads / h.kv_heads;
    Head head;
    for (int i = 0; i < group; ++i) {
        read_head(head, fused + (kv_head * group + i) * h.head_dim, h);
        if (h.q_norm != nullptr) norm_head(head, h.q_norm, h);
        turn_head(head, turn, h);
        round_head(queries + i * h.padded_dim, head, h);
    }
}

INLINE void read_key(Head& head, const Heads& h, const float* fused, const Rotation& turn, int kv_head) {
    read_head(head, fused + h.k_column + kv_head * h.head_dim, h);
    if (h.k_norm != nullptr) norm_head(head, h.k_norm, h);
    turn_head(head, turn, h);
}

// P: terms side by side.
template <int P, class E>
INLINE void place_key(E* keys, const E* row, const Heads& h, int offset) {
    for (int i = 0; i < h.head_dim; ++i) keys[(i / P * kBlock + offset) * P + i % P] = row[i];
}

template <int P, class E>
INLINE void place_value(E* values, const E* row, const Heads& h, int offset) {
    for (int i = 0; i < h.head_dim; ++i)
        values[i / 16 * 16 * kBlock + (offset / P * 16 + i % 16) * P + offset % P] = row[i];
}

template <class T>
void prepare(const Heads& h, const float* fused, const Rotation& turn, int kv_head, void* queries, void* block,
             int offset) {
    prepare_queries(h, fused, turn, kv_head, static_cast<T*>(queries));
    Head head;
    alignas(64) T row[kMaxHeadDim];
    T* keys = static_cast<T*>(block) + kv_head * h.head_elements;
    read_key(head, h, fused, turn, kv_head);
    round_head(row, head, h);
    place_key<kPack<T>>(keys, row, h, offset);
    read_head(head, fused + h.v_column + kv_head * h.head_dim, h);
    round_head(row, head, h);
    place_value<kPack<T>>(keys + kBlock * h.padded_dim, row, h, offset);
}
