// Products of quantised rows with int8 weights. Sums are whole numbers and exact.

template <int M, class F>
INLINE void int8_sums(Ints (&sums)[M][2], const uint8_t* x, long stride, const int8_t* w, int k, F&& fetch) {
    constexpr int N = kWidth;  // vectors of columns at a time
    for (int n = 0; n < 2; n += N) {
        Ints part[M][N];
        for (auto& row : part)
            for (Ints& sum : row) sum = no_ints();
        const uint8_t* from = x;
        const int8_t* at[N];
        for (int i = 0; i < N; ++i) at[i] = w + 64 * (n + i);
        for (int done = 0; done < k; done += 16) {
            if (n == 0) fetch();
            for (int unit = 0; unit < 4; ++unit) {
                step<M, N>(part, from, stride, at);
                from += 4;
                for (int i = 0; i < N; ++i) at[i] += 4 * kPanel;
            }
        }
        for (int m = 0; m < M; ++m)
            for (int i = 0; i < N; ++i) sums[m][n + i] = part[m][i];
    }
}

template <int M, class T>
__attribute__((noinline)) void int8_rows(const Product& p, int panel, int first, Fetch fetch) {
    Ints sums[M][2];
    const uint8_t* x = p.quantised + first * p.quantised_stride;
    const char* w = p.matrix->panel(panel);
    int8_sums(sums, x + kRowHead, p.quantised_stride, reinterpret_cast<const int8_t*>(w), p.matrix->k, fetch);
    const PanelEnd& end = p.matrix->panel_end(panel);
    F16 values[M][2];
    for (int m = 0; m < M; ++m) {
        float scale;
        __builtin_memcpy(&scale, x + m * p.quantised_stride, sizeof scale);
        for (int n = 0; n < 2; ++n) {
            const Ints sum = kZero == 0 ? sums[m][n] : sums[m][n] - load_ints(end.shifts + 16 * n);
            values[m][n] = floats(sum) * load(end.scales + 16 * n) * all(scale);
        }
    }
    deliver<M, T>(values, p, panel, first);
}

// The head's weights serve as embedding too: one column of a panel, turned back.
inline void embed_int8(const Matrix& head, int token, int width, float* out) {
    const char* column = head.panel(token / kPanel) + token % kPanel * 4;
    const float scale = head.panel_end(token / kPanel).scales[token % kPanel] / kTurnGain;
    for (int i = 0; i < width; i += kTurn) {
        alignas(64) int8_t bytes[kTurn];
        for (int j = 0; j < kTurn; j += 4, column += 4 * kPanel) __builtin_memcpy(bytes + j, column, 4);
        F16 x[kTurn / 16];
        for (int j = 0; j < kTurn / 16; ++j) x[j] = load_bytes(bytes + 16 * j);
        turn(x);
        alignas(64) float whole[kTurn];
        for (int j = 0; j < kTurn / 16; ++j) store(whole + 16 * j, x[j] * all(scale));
        const int left = width - i < kTurn ? width - i : kTurn;
        for (int j = 0; j < left; ++j) out[i + j] = whole[j];
    }
}
