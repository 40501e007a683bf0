// Paged attention of a few query rows of one sequence and kv head over the blocks of its table.
//
// Row r of a sequence belongs to position start + r / group. Tokens are taken in chunks of 64, aligned at
// absolute positions, so that a row's sums are the same in whatever tile or piece of the prompt it is
// computed: a chunk that a row does not see leaves its sums unchanged to the bit.

template <class T>
struct Scratch {
    alignas(64) float scores[kTile][kChunk];
    alignas(64) T shares[kTile][kChunk];
    alignas(64) float sums[kTile][kMaxHeadDim];
    alignas(64) T values[kBlock * kMaxHeadDim];
    alignas(64) float totals[kTile][16];  // of each lane's shares
    alignas(64) float high[16], found[16], rescale[16];  // one lane a row
};

// Blocks of one chunk that some row sees: `count` of them from table[first] on, tokens up to `end`.
struct Chunk {
    int origin;  // position of its first token
    int first;
    int count;
    int end;
};

// The blocks that will be read next: of the same row's next chunk, or of the following item's first.
struct Ahead {
    const int32_t* table;
    int count;
    int kv_head;
};

INLINE int lowest_seen(int position, int window) {
    return window > 0 && position >= window ? position - window + 1 : 0;
}

INLINE Ahead look_ahead(const Attend& a, int origin, int high_position) {
    const Span* span = a.span;
    int begin = origin + kChunk, head = a.kv_head, high = high_position;
    if (begin > high_position) {
        if (a.next == nullptr) return {nullptr, 0, 0};
        span = a.next, head = a.next_head, high = span->start;
        begin = lowest_seen(span->start, a.window);
    }
    const int first = begin / kBlock, end = begin / kChunk * kChunk + kChunk;
    const int last = (high < end - 1 ? high : end - 1) / kBlock;
    return {span->table + first, last - first + 1, head};
}

template <class T>
INLINE const T* block_of(const Attend& a, int index) {
    const long block = a.span->table[index];
    return static_cast<const T*>(a.cache) + block * a.heads->block_elements + a.kv_head * a.heads->head_elements;
}

// Asks for them line by line, while the present ones are worked on.
template <class T>
struct FetchBlocks {
    FetchBlocks(const Attend& a, const Ahead& ahead) : cache(static_cast<const T*>(a.cache)), blocks(ahead) {
        elements = a.heads->head_elements;
        pitch = a.heads->block_elements;
        head = blocks.kv_head * elements;
        open();
    }
    INLINE_MEMBER void operator()() {
        if (at >= end) return;
        for (int line = 0; line < 8; ++line) _mm_prefetch(at + 64 * line, _MM_HINT_T1);
        at += 512;
        if (at >= end) open();
    }
    void open() {
        at = end = nullptr;
        if (blocks.count == 0) return;
        at = reinterpret_cast<const char*>(cache + *blocks.table * pitch + head);
        end = at + elements * static_cast<long>(sizeof(T));
        ++blocks.table, --blocks.count;
    }
    const T* cache;
    Ahead blocks;
    long elements, pitch, head;
    const char *at, *end;
};

template <int N, class T>
INLINE void score_blocks(const Attend& a, const T* q, int rows, const Chunk& c, int index, Scratch<T>& s,
                         FetchBlocks<T>& fetch) {
    const T* keys[N];
    for (int n = 0; n < N; ++n) keys[n] = block_of<T>(a, index + n);
    const int column = index * kBlock - c.origin;
    for (int first = 0; first < rows; first += kRows) {
        with_rows<kRows>(rows - first < kRows ? rows - first : kRows, [&](auto m) __attribute__((always_inline)) {
            constexpr int M = decltype(m)::value;
            F16 sums[M][N];
            clear(sums);
            const T* const(&w)[N] = keys;
            accumulate(sums, q + first * a.heads->padded_dim, a.heads->padded_dim, w, kBlock * kPack<T>,
                          a.heads->head_dim / kPack<T>, fetch);
            for (int row = 0; row < M; ++row)
                for (int n = 0; n < N; ++n)
                    store(&s.scores[first + row][column + n * kBlock], sums[row][n]);
        });
    }
}

template <class T>
INLINE void score(const Attend& a, const T* q, int rows, const Chunk& c, Scratch<T>& s, FetchBlocks<T>& fetch) {
    int index = c.first;
    const int last = c.first + c.count;
    if constexpr (kWidth == 2)
        for (; index + 2 <= last; index += 2) score_blocks<2, T>(a, q, rows, c, index, s, fetch);
    for (; index < last; ++index) score_blocks<1, T>(a, q, rows, c, index, s, fetch);
}

// Which tokens of a chunk a row sees: [low, high) counted from the chunk's first one.
struct Seen {
    int low, high;

    // The part of it in vector i, as lanes.
    INLINE_MEMBER int from(int i) const { return lane(low - 16 * i); }
    INLINE_MEMBER int to(int i) const { return lane(high - 16 * i); }
    static INLINE_MEMBER int lane(int x) { return x < 0 ? 0 : x > 16 ? 16 : x; }
};

INLINE Seen seen_by(const Attend& a, int index, const Chunk& c) {
    const int position = a.span->start + index / (a.heads->heads / a.heads->kv_heads);
    return {lowest_seen(position, a.window) - c.origin, position + 1 - c.origin};
}

// The largest score of each row, in found. Capped scores are kept in place of the products of q and k.
template <bool WHOLE, class T>
INLINE void find_highest(const Attend& a, int first, int rows, const Chunk& c, Scratch<T>& s) {
    const Heads& h = *a.heads;
    const F16 none = all(-__builtin_inff());
    const int begin = c.first - c.origin / kBlock, end = begin + c.count;
    for (int row = 0; row < rows; ++row) {
        const Seen seen = seen_by(a, first + row, c);
        F16 top = none;
        for (int i = begin; i < end; ++i) {
            F16 score = load(&s.scores[row][16 * i]);
            if (h.softcap > 0.0f) {
                score = capped(score * all(h.scale), h.softcap);
                store(&s.scores[row][16 * i], score);
            }
            top = larger(top, WHOLE ? score : keep(score, seen.from(i), seen.to(i), none));
        }
        s.found[row] = highest(top);
    }
}

// Scores to shares of a row's sum; what the row does not see gets 0, whatever was stored there.
template <bool WHOLE, class T>
INLINE void share(const Attend& a, int first, int rows, const Chunk& c, Scratch<T>& s) {
    find_highest<WHOLE>(a, first, rows, c, s);
    const F16 scale = all(a.heads->softcap > 0.0f ? 1.0f : a.heads->scale);
    // All are finite: where a row has seen nothing yet its highest is the starting value.
    const F16 before = load(s.high), now = larger(load(s.found) * scale, before);
    store(s.high, now);
    store(s.rescale, power2(before - now));
    const int begin = c.first - c.origin / kBlock, end = begin + c.count;
    for (int row = 0; row < rows; ++row) {
        const Seen seen = seen_by(a, first + row, c);
        const F16 top = all(s.high[row]);
        F16 total = load(s.totals[row]) * all(s.rescale[row]);
        for (int i = begin; i < end; ++i) {
            F16 part = power2(load(&s.scores[row][16 * i]) * scale - top);
            if constexpr (!WHOLE) part = keep(part, seen.from(i), seen.to(i), all(0.0f));
            total = total + part;
            store(&s.shares[row][16 * i], part);
        }
        store(s.totals[row], total);
    }
}

// V of the block that holds the last visible token, zero behind it: what lies there was never written for
// this sequence and may not be a number.
template <class T>
INLINE const T* trimmed(const Attend& a, const T* values, int tokens, Scratch<T>& s) {
    constexpr int P = kPack<T>;
    for (int i = 0; i < kBlock * a.heads->padded_dim; ++i) {
        const int token = i % (16 * kBlock) / (16 * P) * P + i % P;
        s.values[i] = token < tokens ? values[i] : T{};
    }
    return s.values;
}

template <int N, class T>
INLINE void mix_columns(const T* const* values, int rows, int column, const Chunk& c, Scratch<T>& s,
                        FetchBlocks<T>& fetch) {
    const int begin = c.first * kBlock - c.origin;
    for (int first = 0; first < rows; first += kRows) {
        with_rows<kRows>(rows - first < kRows ? rows - first : kRows, [&](auto m) __attribute__((always_inline)) {
            constexpr int M = decltype(m)::value;
            F16 sums[M][N];
            for (int row = 0; row < M; ++row)
                for (int n = 0; n < N; ++n)
                    sums[row][n] = load(&s.sums[first + row][column + 16 * n]) * all(s.rescale[first + row]);
            for (int block = 0; block < c.count; ++block) {
                const T* w[N];
                for (int n = 0; n < N; ++n) w[n] = values[block] + (column + 16 * n) * kBlock;
                const T* const(&columns)[N] = w;
                accumulate(sums, &s.shares[first][begin + kBlock * block], kChunk, columns, 16 * kPack<T>,
                              kBlock / kPack<T>, fetch);
            }
            for (int row = 0; row < M; ++row)
                for (int n = 0; n < N; ++n) store(&s.sums[first + row][column + 16 * n], sums[row][n]);
        });
    }
}

template <class T>
INLINE void mix(const Attend& a, int rows, const Chunk& c, Scratch<T>& s, FetchBlocks<T>& fetch) {
    const T* values[kChunk / kBlock];
    for (int i = 0; i < c.count; ++i)
        values[i] = block_of<T>(a, c.first + i) + kBlock * a.heads->padded_dim;
    const int last = c.first + c.count - 1, tokens = c.end - last * kBlock;
    if (tokens < kBlock) values[c.count - 1] = trimmed(a, values[c.count - 1], tokens, s);
    int column = 0;
    if constexpr (kWidth == 2)
        for (; column + 32 <= a.heads->padded_dim; column += 32)
            mix_columns<2, T>(values, rows, column, c, s, fetch);
    for (; column < a.heads->padded_dim; column += 16) mix_columns<1, T>(values, rows, column, c, s, fetch);
}

template <class T, class S>
INLINE void finish_row(const Attend& a, int row, int index, const Scratch<S>& s) {
    const Heads& h = *a.heads;
    const int group = h.heads / h.kv_heads;
    T* out = static_cast<T*>(a.out) + (a.span->row + index / group) * a.out_stride +
             (a.kv_head * group + index % group) * h.head_dim;
    const F16 inverse = all(1.0f / sum(load(s.totals[row])));
    for (int i = 0; i < h.head_dim; i += 16) {
        const F16 value = load(&s.sums[row][i]) * inverse;
        if (h.head_dim - i >= 16) {
            store(out + i, value);
        } else {
            alignas(64) T whole[16];
            store(whole, value);
            for (int j = 0; j < h.head_dim - i; ++j) out[i + j] = whole[j];
        }
    }
}

// T: of what comes out; C: of the cache. fill(chunk, fetch) makes the scores of a chunk, mix(chunk, fetch) adds
// its values by their shares.
template <class T, class C, class S, class Fill, class Mix>
INLINE void attend_rows(const Attend& a, int first, int rows, Scratch<S>& s, Fill&& fill, Mix&& mix) {
    const Heads& h = *a.heads;
    const int group = h.heads / h.kv_heads;
    const int low_position = a.span->start + first / group;
    const int high_position = a.span->start + (first + rows - 1) / group;
    const int lowest = lowest_seen(low_position, a.window);
    store(s.high, all(-1e30f));
    store(s.found, all(-1e30f));
    for (int row = 0; row < rows; ++row) {
        store(s.totals[row], all(0.0f));
        for (int i = 0; i < h.padded_dim; i += 16) store(&s.sums[row][i], all(0.0f));
    }
    for (int origin = lowest / kChunk * kChunk; origin <= high_position; origin += kChunk) {
        const int begin = lowest > origin ? lowest : origin;
        const int end = high_position + 1 < origin + kChunk ? high_position + 1 : origin + kChunk;
        const int block = begin / kBlock;
        const Chunk chunk = {origin, block, (end - 1) / kBlock + 1 - block, end};
        // A single token reads each key once, from memory; the rows of a prompt find them in the cache.
        FetchBlocks<C> fetch(a, a.span->count == 1 ? look_ahead(a, origin, high_position) : Ahead{nullptr, 0, 0});
        fill(chunk, fetch);
        if (low_position + 1 >= origin + kChunk && lowest_seen(high_position, a.window) <= origin)
            share<true>(a, first, rows, chunk, s);
        else
            share<false>(a, first, rows, chunk, s);
        mix(chunk, fetch);
    }
    for (int row = 0; row < rows; ++row) finish_row<T>(a, row, first + row, s);
}

template <class T>
void attend(const Attend& a, int first, int rows, void* scratch) {
    Scratch<T>& s = *static_cast<Scratch<T>*>(scratch);
    const T* q = static_cast<const T*>(a.queries) + static_cast<long>(first) * a.heads->padded_dim;
    attend_rows<T, T>(
        a, first, rows, s,
        [&](const Chunk& c, FetchBlocks<T>& fetch) __attribute__((always_inline)) { score(a, q, rows, c, s, fetch); },
        [&](const Chunk& c, FetchBlocks<T>& fetch) __attribute__((always_inline)) { mix(a, rows, c, s, fetch); });
}
