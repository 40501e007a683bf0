// Products with packed weights. Each sum runs over k in ascending order in one accumulator.

struct NoFetch {
    INLINE_MEMBER void operator()() {}
};

constexpr int kPieceLines = 3;  // of what is read later, each time

// `lines` cache lines each time, one after another, and some of the pieces. A loop, not unrolled: one body of the
// product serves every number of lines, which cuts the time to compile by half.
struct Fetch {
    const char* next;
    int lines;
    const Ahead::Piece *piece = nullptr, *last = nullptr;
    int done = 0;  // lines of the piece

    INLINE_MEMBER void operator()() {
        for (const char* end = next + 64L * lines; next != end; next += 64) _mm_prefetch(next, _MM_HINT_T1);
        for (int i = 0; i < kPieceLines && piece != last; ++i) {
            _mm_prefetch(piece->at + 64L * done, _MM_HINT_T1);
            if (++done == piece->lines) ++piece, done = 0;
        }
    }
};

// sums[m][n] += x[m] . w[n] over `units` lanes' worth of terms; w[n] advances by `pitch` elements a unit.
// Every four units `fetch` may ask for memory that will be read later.
template <int M, int N, class S, class X, class W, class F>
INLINE void accumulate(S (&sums)[M][N], const X* x, long stride, const W* const (&start)[N], long pitch,
                       long units, F&& fetch) {
    const W* w[N];
    for (int n = 0; n < N; ++n) w[n] = start[n];
    const auto one = [&]() __attribute__((always_inline)) {
        step<M, N>(sums, x, stride, w);
        x += kPack<X>;
        for (int n = 0; n < N; ++n) w[n] += pitch;
    };
    long done = 0;
    for (; done + 4 <= units; done += 4) {
        fetch();
        one(), one(), one(), one();
    }
    for (; done < units; ++done) one();
}

template <int M, int N, class S>
INLINE void clear(S (&sums)[M][N]) {
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) sums[m][n] = S{};
}

// The 32 columns of one panel.
template <int M, class S, class X, class W, class F>
INLINE void panel_sums(S (&sums)[M][2], const X* x, long stride, const W* w, int k, F&& fetch) {
    const long half = 16 * kPack<W>, units = k / kPack<W>;
    if constexpr (kWidth == 2) {
        const W* const columns[2] = {w, w + half};
        accumulate(sums, x, stride, columns, 2 * half, units, fetch);
    } else {
        for (int n = 0; n < 2; ++n) {
            S part[M][1];
            clear(part);
            const W* const column[1] = {w + n * half};
            if (n == 0)
                accumulate(part, x, stride, column, 2 * half, units, fetch);
            else
                accumulate(part, x, stride, column, 2 * half, units, NoFetch());
            for (int m = 0; m < M; ++m) sums[m][n] = part[m][0];
        }
    }
}

// A row's 32 sums of one panel, all that is added to them included, to where the product goes.
template <class T>
INLINE void put_row(const F16 (&value)[2], const Product& p, int panel, int row) {
    const long column = static_cast<long>(panel) * kPanel;
    if (p.into == Into::kSiluGated) {
        store(static_cast<T*>(p.out) + row * p.out_stride + column / 2, silu(value[0]) * value[1]);
        return;
    }
    for (int n = 0; n < 2; ++n) {
        const long place = p.into == Into::kExact ? p.places[row] : row;
        float* y = p.y + place * p.y_stride + column + 16 * n;
        const long left = p.matrix->n - column - 16 * n;
        if (p.into == Into::kAdd)
            store(y, load(y) + value[n]);
        else if (p.into != Into::kExact || left >= 16)
            store(y, value[n]);
        else if (left > 0)
            store_part(y, value[n], static_cast<int>(left));
    }
}

template <int M>
INLINE void add_bias(F16 (&sums)[M][2], const Product& p, int panel) {
    if (p.matrix->bias == nullptr) return;
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < 2; ++n) sums[m][n] = sums[m][n] + load(p.matrix->bias + panel * kPanel + 16 * n);
}

// Rows of which some have an adapter: in gemm_change.h.
template <class T>
void deliver_changed(const Product& p, int panel, int first, int rows, float (*sums)[kPanel]);

template <int M, class T>
INLINE void deliver(F16 (&sums)[M][2], const Product& p, int panel, int first) {
    add_bias(sums, p, panel);
    if (p.changes == nullptr) {
        for (int m = 0; m < M; ++m) put_row<T>(sums[m], p, panel, first + m);
        return;
    }
    alignas(64) float kept[M][kPanel];
    for (int m = 0; m < M; ++m) store(kept[m], sums[m][0]), store(kept[m] + 16, sums[m][1]);
    deliver_changed<T>(p, panel, first, M, kept);
}

// What is written to may lie in another core's cache: it is asked for before the sums are worked out.
template <int M>
INLINE void fetch_sums(const Product& p, int panel, int first) {
    if (p.into != Into::kAdd && p.into != Into::kStore) return;
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < 2; ++n)
            __builtin_prefetch(p.y + (first + m) * p.y_stride + static_cast<long>(panel) * kPanel + 16 * n, 1);
}

template <int M, class T>
__attribute__((noinline)) void panel_rows(const Product& p, int panel, int first, Fetch fetch) {
    F16 sums[M][2];
    clear(sums);
    fetch_sums<M>(p, panel, first);
    const T* x = static_cast<const T*>(p.x) + first * p.x_stride;
    const T* w = reinterpret_cast<const T*>(p.matrix->panel(panel));
    panel_sums(sums, x, p.x_stride, w, p.matrix->k, fetch);
    deliver<M, T>(sums, p, panel, first);
}

template <int M, class T>
void int8_rows(const Product& p, int panel, int first, Fetch fetch);  // in gemm_int8.h

template <class T>
void gate_panel(const Product& p, int panel, int first, int rows) {
    for (int row = first; row < first + rows; ++row) {
        T* out = static_cast<T*>(p.out) + row * p.out_stride + static_cast<long>(panel) * p.gate.columns();
        gate<T>(p.gate, p.y + row * p.y_stride + static_cast<long>(panel) * kPanel, 1, out);
    }
}

// Rows in runs of nearly equal length. A panel has eight cache lines for every four steps of the inner loop:
// a single run fetches all of the next panel, the first two of several fetch half of it each.
template <class T>
void multiply(const Product& p, int panel, int first, int rows, const char* next) {
    const int runs = (rows + kRows - 1) / kRows;
    const long half = p.matrix->panel_bytes / 2;
    for (int run = 0; run < runs; ++run) {
        const int low = rows * run / runs, count = rows * (run + 1) / runs - low;
        const int lines = next == nullptr || run > 1 ? 0 : runs == 1 ? 8 : 4;
        Fetch fetch = {lines == 0 ? nullptr : next + run * half, lines};
        if (p.ahead != nullptr && run < 2) {
            const int middle = runs == 1 ? p.ahead->count : p.ahead->count / 2;
            fetch.piece = p.ahead->pieces + (run == 0 ? 0 : middle);
            fetch.last = p.ahead->pieces + (run == 0 ? middle : p.ahead->count);
        }
        with_rows<kRows>(count, [&](auto m) __attribute__((always_inline)) {
            constexpr int M = decltype(m)::value;
            p.matrix->int8 ? int8_rows<M, T>(p, panel, first + low, fetch)
                           : panel_rows<M, T>(p, panel, first + low, fetch);
        });
    }
    if (p.into == Into::kGated) gate_panel<T>(p, panel, first, rows);
}

// One panel of an adapter's matrix.
template <int M, class T>
INLINE void narrow_sums(F16 (&sums)[M][1], const Narrow& matrix, int panel, const T* x, long stride) {
    clear(sums);
    const T* const w[1] = {static_cast<const T*>(matrix.weights) + panel * matrix.panel_elements};
    accumulate(sums, x, stride, w, 16 * kPack<T>, matrix.k / kPack<T>, NoFetch());
}

template <class T, class F>
INLINE void narrow_rows(const Narrow& matrix, int panel, const T* x, long stride, int rows, F&& deliver_row) {
    for (int first = 0; first < rows; first += kRows) {
        const int count = rows - first < kRows ? rows - first : kRows;
        with_rows<kRows>(count, [&](auto m) __attribute__((always_inline)) {
            constexpr int M = decltype(m)::value;
            F16 sums[M][1];
            narrow_sums<M, T>(sums, matrix, panel, x + first * stride, stride);
            for (int row = 0; row < M; ++row) deliver_row(first + row, sums[row][0]);
        });
    }
}

template <class T>
void expand(const Narrow& matrix, int panel, const void* x, long x_stride, int rows, float* y, long y_stride,
            int pitch) {
    const int left = matrix.n - 16 * panel, width = left < 16 ? left : 16;
    float* to = y + static_cast<long>(panel) * pitch;
    narrow_rows<T>(matrix, panel, static_cast<const T*>(x), x_stride, rows, [&](int row, F16 value) {
        float* at = to + row * y_stride;
        if (width == 16)
            store(at, load(at) + value);
        else
            store_part(at, load_part(at, width) + value, width);
    });
}
