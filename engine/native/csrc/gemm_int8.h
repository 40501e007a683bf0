// Products of quantised rows with int8 weights. Sums are whole numbers and exact.

template <int M, class T>
__attribute__((noinline)) void int8_rows(const Product& p, int panel, int first, Fetch fetch) {
    Ints sums[M][2];
    clear(sums);
    const uint8_t* x = p.quantised + first * p.quantised_stride;
    const int8_t* w = reinterpret_cast<const int8_t*>(p.matrix->panel(panel));
    panel_sums(sums, x + kRowHead, p.quantised_stride, w, p.matrix->k, fetch);
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
