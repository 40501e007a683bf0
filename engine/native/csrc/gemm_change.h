// What adapters make of a product: A x before it, and gain, shift and B (A x) on its sums, row by row. A row's
// numbers do not depend on the rows beside it, nor on how the rows of A are shared out.

constexpr int kChangedRows = kRows > 4 ? 4 : 2;  // rows of one adapter that read B together

// Rows of x against rows of A, each sum along both.
template <int M, int R, class T>
INLINE void row_products(float (&sums)[M][R], const T* const (&x)[M], const T* const (&a)[R], int in) {
    F16 wide_sums[M][R];
    clear(wide_sums);
    int done = 0;
    for (; done + kSpan<T> <= in; done += kSpan<T>)
        for (int r = 0; r < R; ++r)
            for (int m = 0; m < M; ++m)
                wide_sums[m][r] = add_products(wide_sums[m][r], x[m] + done, a[r] + done);
    for (int m = 0; done < in && m < M; ++m) {
        alignas(64) T rest[kSpan<T>] = {};
        __builtin_memcpy(rest, x[m] + done, (in - done) * sizeof(T));
        for (int r = 0; r < R; ++r) wide_sums[m][r] = add_products(wide_sums[m][r], rest, a[r] + done);
    }
    for (int m = 0; m < M; ++m)
        for (int r = 0; r < R; ++r) sums[m][r] = sum(wide_sums[m][r]);
}

template <int M, int R, class T>
INLINE void inward_tile(const Change& change, int rank, const T* x, long x_stride, int in, T* out, long out_stride) {
    const T *rows[M], *ranks[R];
    for (int m = 0; m < M; ++m) rows[m] = x + m * x_stride;
    for (int r = 0; r < R; ++r) ranks[r] = reinterpret_cast<const T*>(change.a + (rank + r) * change.a_bytes);
    const T* const(&x_rows)[M] = rows;
    const T* const(&a_rows)[R] = ranks;
    float sums[M][R];
    row_products(sums, x_rows, a_rows, in);
    for (int m = 0; m < M; ++m) {
        alignas(64) float whole[16] = {};
        alignas(64) T rounded[16];
        for (int r = 0; r < R; ++r) whole[r] = sums[m][r];
        store(rounded, load(whole));
        __builtin_memcpy(out + m * out_stride + rank, rounded, R * sizeof(T));
    }
}

template <int M, class T>
INLINE void inward_rows(const Change& change, int first, int end, const T* x, long x_stride, int in, T* out,
                        long out_stride) {
    int rank = first;
    for (; rank + 4 <= end; rank += 4) inward_tile<M, 4>(change, rank, x, x_stride, in, out, out_stride);
    for (; rank < end; rank += 2) inward_tile<M, 2>(change, rank, x, x_stride, in, out, out_stride);
}

template <class T>
void inward(const Change& change, int first, int end, const void* x, long x_stride, int in, int rows, void* out,
            long out_stride) {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(out);
    int row = 0;
    for (; row + 2 <= rows; row += 2)
        inward_rows<2>(change, first, end, from + row * x_stride, x_stride, in, to + row * out_stride, out_stride);
    if (row < rows)
        inward_rows<1>(change, first, end, from + row * x_stride, x_stride, in, to + row * out_stride, out_stride);
}

// Rows of one adapter: their sums of one panel, a block at each side, become those behind its delta. Both sides run
// side by side as far as they go: each sum alone would wait for its own last step.
template <int M, class T>
INLINE void add_blocks(float (*sums)[kPanel], const Change& change, const Block* blocks, const T* inner, long stride) {
    F16 left[M][1], right[M][1];
    clear(left), clear(right);
    const T *x[2], *w[2][1];
    for (int n = 0; n < 2; ++n) {
        x[n] = inner + blocks[n].first;
        w[n][0] = reinterpret_cast<const T*>(change.b + blocks[n].at);
    }
    const auto one = [&](F16(&side)[M][1], int n) __attribute__((always_inline)) {
        const T* const(&columns)[1] = w[n];
        step<M, 1>(side, x[n], stride, columns);
        x[n] += kPack<T>, w[n][0] += 16 * kPack<T>;
    };
    const int units[2] = {blocks[0].terms / kPack<T>, blocks[1].terms / kPack<T>};
    const int both = units[0] < units[1] ? units[0] : units[1];
    for (int done = 0; done < both; ++done) one(left, 0), one(right, 1);
    for (int done = both; done < units[0]; ++done) one(left, 0);
    for (int done = both; done < units[1]; ++done) one(right, 1);
    for (int m = 0; m < M; ++m) {
        if (units[0] != 0) store(sums[m], load(sums[m]) + left[m][0]);
        if (units[1] != 0) store(sums[m] + 16, load(sums[m] + 16) + right[m][0]);
    }
}

template <class T>
INLINE void add_delta(float (*sums)[kPanel], int rows, const Product& p, const Change& change, int panel, int first) {
    const Block* blocks = change.blocks + 2 * panel;
    if (blocks[2].at == blocks[0].at) return;
    for (int done = 0; done < rows; done += kChangedRows) {
        const int count = rows - done < kChangedRows ? rows - done : kChangedRows;
        const T* inner = static_cast<const T*>(p.inner) + (first + done) * p.inner_stride;
        with_rows<kChangedRows>(count, [&](auto m) __attribute__((always_inline)) {
            add_blocks<decltype(m)::value>(sums + done, change, blocks, inner, p.inner_stride);
        });
    }
}

// gain * y + shift
INLINE void scale(float (*sums)[kPanel], int rows, const Change& change, int panel) {
    for (int n = 0; n < 2; ++n) {
        const long column = static_cast<long>(panel) * kPanel + 16 * n;
        const F16 gain = load(change.gain + column), shift = load(change.shift + column);
        for (int row = 0; row < rows; ++row)
            store(sums[row] + 16 * n, multiply_add(load(sums[row] + 16 * n), gain, shift));
    }
}

template <class T>
__attribute__((noinline)) void deliver_changed(const Product& p, int panel, int first, int rows,
                                               float (*sums)[kPanel]) {
    for (int row = 0, end; row < rows; row = end) {
        const Change* change = p.change_of(first + row);
        for (end = row + 1; end < rows && p.change_of(first + end) == change;) ++end;
        if (change == nullptr) continue;
        if (change->gain != nullptr) scale(sums + row, end - row, *change, panel);
        if (change->ranks != 0) add_delta<T>(sums + row, end - row, p, *change, panel, first + row);
    }
    for (int row = 0; row < rows; ++row) {
        const F16 value[2] = {load(sums[row]), load(sums[row] + 16)};
        put_row<T>(value, p, panel, first + row);
    }
}

template <class T>
void deliver_sums(const Product& p, int panel, int first, int rows, float (*sums)[kPanel]) {
    deliver_changed<T>(p, panel, first, rows, sums);
    if (p.into == Into::kGated) gate_panel<T>(p, panel, first, rows);
}
