// Attention over keys and values in int8, and a token's way there.
//
// A block of one kv head: K [padded_dim/2][16 tokens][2], V [padded_dim/16][8 token pairs][16][2], then a scale
// for each token's key and for each token's value. Queries and shares become whole numbers of sixteen bits, in
// which they lose less than in bf16; so the products are exact, and scales are multiplied in afterwards.

constexpr float kSteps = 127.0f;     // of keys and values, either way from zero
constexpr float kFine = 32767.0f;    // of queries and shares

struct Int8Block {
    Int8Block(int8_t* at, const Heads& h)
        : keys(at),
          values(at + kBlock * h.padded_dim),
          key_scales(reinterpret_cast<float*>(at + 2 * kBlock * h.padded_dim)),
          value_scales(key_scales + kBlock) {}
    int8_t* keys;
    int8_t* values;
    float* key_scales;
    float* value_scales;
};

INLINE Int8Block int8_block_of(const Attend& a, int index) {
    return {const_cast<int8_t*>(block_of<int8_t>(a, index)), *a.heads};
}

struct Int8Scratch {
    Scratch<float> floats;
    alignas(64) int16_t queries[kTile][kMaxHeadDim];
    alignas(64) int16_t shares[kTile][kChunk];
    alignas(64) float value_scales[kChunk];
    float query_scales[kTile], share_scales[kTile];
};

// The numbers of one head, as far as it is padded, and what each is worth.
INLINE float round_head(int8_t* out, const Head& head, const Heads& h) {
    Rounding rounding;
    for (int i = 0; i < h.padded_dim; i += 16) rounding.look(load(head.x + i));
    const F16 inverse = all(rounding.inverse(kSteps));
    for (int i = 0; i < h.padded_dim; i += 16) store_bytes(out + i, load(head.x + i) * inverse, 0);
    return rounding.scale(kSteps);
}

template <class T>
void prepare_int8(const Heads& h, const float* fused, const Rotation& turn, int kv_head, void* queries, void* block,
                  int offset) {
    prepare_queries(h, fused, turn, kv_head, static_cast<T*>(queries));
    const Int8Block to(static_cast<int8_t*>(block) + kv_head * h.head_elements, h);
    Head head;
    alignas(64) int8_t row[kMaxHeadDim];
    read_key(head, h, fused, turn, kv_head);
    to.key_scales[offset] = round_head(row, head, h);
    place_key<2>(to.keys, row, h, offset);
    read_head(head, fused + h.v_column + kv_head * h.head_dim, h);
    to.value_scales[offset] = round_head(row, head, h);
    place_value<2>(to.values, row, h, offset);
}

template <class T>
INLINE void read_queries(const Attend& a, int first, int rows, Int8Scratch& s) {
    const int width = a.heads->padded_dim;
    const T* q = static_cast<const T*>(a.queries) + static_cast<long>(first) * width;
    for (int row = 0; row < rows; ++row, q += width) {
        Rounding rounding;
        for (int i = 0; i < width; i += 16) rounding.look(load(q + i));
        const F16 inverse = all(rounding.inverse(kFine));
        for (int i = 0; i < width; i += 16) store_words(&s.queries[row][i], load(q + i) * inverse);
        s.query_scales[row] = rounding.scale(kFine);
    }
}

template <int N>
INLINE void score_int8(const Attend& a, int rows, const Chunk& c, int index, Int8Scratch& s,
                       FetchBlocks<int8_t>& fetch) {
    const int8_t* keys[N];
    F16 scales[N];
    for (int n = 0; n < N; ++n) {
        const Int8Block block = int8_block_of(a, index + n);
        keys[n] = block.keys;
        scales[n] = load(block.key_scales);
    }
    const int column = index * kBlock - c.origin;
    for (int first = 0; first < rows; first += kRows) {
        with_rows<kRows>(rows - first < kRows ? rows - first : kRows, [&](auto m) __attribute__((always_inline)) {
            constexpr int M = decltype(m)::value;
            Ints sums[M][N];
            clear(sums);
            const int8_t* const(&w)[N] = keys;
            accumulate(sums, s.queries[first], kMaxHeadDim, w, kBlock * 2, a.heads->head_dim / 2, fetch);
            for (int row = 0; row < M; ++row)
                for (int n = 0; n < N; ++n)
                    store(&s.floats.scores[first + row][column + n * kBlock],
                          floats(sums[row][n]) * scales[n] * all(s.query_scales[first + row]));
        });
    }
}

// Neither this nor mix() depends on what comes out: not inlined, they are compiled once.
static __attribute__((noinline)) void score(const Attend& a, int rows, const Chunk& c, Int8Scratch& s,
                                            FetchBlocks<int8_t>& fetch) {
    int index = c.first;
    const int last = c.first + c.count;
    if constexpr (kWidth == 2)
        for (; index + 2 <= last; index += 2) score_int8<2>(a, rows, c, index, s, fetch);
    for (; index < last; ++index) score_int8<1>(a, rows, c, index, s, fetch);
}

// Shares times the scales of the values. Behind the last visible token no scale was written for this sequence.
INLINE void read_shares(const Attend& a, int rows, const Chunk& c, Int8Scratch& s) {
    const int begin = c.first * kBlock - c.origin, end = begin + c.count * kBlock;
    for (int i = 0; i < c.count; ++i) {
        const int left = c.end - (c.first + i) * kBlock;
        const F16 scales = load(int8_block_of(a, c.first + i).value_scales);
        store(s.value_scales + begin + kBlock * i, left >= 16 ? scales : keep(scales, 0, left, all(0.0f)));
    }
    for (int row = 0; row < rows; ++row) {
        float* shares = s.floats.shares[row];
        Rounding rounding;
        for (int i = begin; i < end; i += 16) {
            const F16 share = load(shares + i) * load(s.value_scales + i);
            rounding.look(share);
            store(shares + i, share);
        }
        const F16 inverse = all(rounding.inverse(kFine));
        for (int i = begin; i < end; i += 16) store_words(&s.shares[row][i], load(shares + i) * inverse);
        s.share_scales[row] = rounding.scale(kFine);
    }
}

template <int N>
INLINE void mix_int8(const int8_t* const* values, int rows, int column, const Chunk& c, Int8Scratch& s,
                     FetchBlocks<int8_t>& fetch) {
    const int begin = c.first * kBlock - c.origin;
    for (int first = 0; first < rows; first += kRows) {
        with_rows<kRows>(rows - first < kRows ? rows - first : kRows, [&](auto m) __attribute__((always_inline)) {
            constexpr int M = decltype(m)::value;
            Ints found[M][N];
            clear(found);
            for (int block = 0; block < c.count; ++block) {
                const int8_t* w[N];
                for (int n = 0; n < N; ++n) w[n] = values[block] + (column + 16 * n) * kBlock;
                const int8_t* const(&columns)[N] = w;
                accumulate(found, &s.shares[first][begin + kBlock * block], kChunk, columns, 32, kBlock / 2, fetch);
            }
            for (int row = 0; row < M; ++row)
                for (int n = 0; n < N; ++n) {
                    float* to = &s.floats.sums[first + row][column + 16 * n];
                    store(to, multiply_add(floats(found[row][n]), all(s.share_scales[first + row]),
                                           load(to) * all(s.floats.rescale[first + row])));
                }
        });
    }
}

static __attribute__((noinline)) void mix(const Attend& a, int rows, const Chunk& c, Int8Scratch& s,
                                          FetchBlocks<int8_t>& fetch) {
    read_shares(a, rows, c, s);
    const int8_t* values[kChunk / kBlock];
    for (int i = 0; i < c.count; ++i) values[i] = int8_block_of(a, c.first + i).values;
    int column = 0;
    if constexpr (kWidth == 2)
        for (; column + 32 <= a.heads->padded_dim; column += 32) mix_int8<2>(values, rows, column, c, s, fetch);
    for (; column < a.heads->padded_dim; column += 16) mix_int8<1>(values, rows, column, c, s, fetch);
}

template <class T>
void attend_int8(const Attend& a, int first, int rows, void* scratch) {
    Int8Scratch& s = *static_cast<Int8Scratch*>(scratch);
    read_queries<T>(a, first, rows, s);
    using Fetched = FetchBlocks<int8_t>;
    attend_rows<T, int8_t>(
        a, first, rows, s.floats,
        [&](const Chunk& c, Fetched& fetch) { score(a, rows, c, s, fetch); },
        [&](const Chunk& c, Fetched& fetch) { mix(a, rows, c, s, fetch); });
}
