// Rows in int8: turned by Hadamard matrices, then scaled so that the largest of a row becomes 127.
//
// A few columns of a transformer's activations are a hundred times as large as the rest; one scale a row would
// leave the rest a handful of steps. An orthogonal turn of weights and rows alike changes no product and spreads
// the large ones over their block of 64 columns. The turn here is 8 times the orthogonal one.

INLINE void turn(F16 (&x)[kTurn / 16]) {
    for (F16& part : x)
        part = butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(part))));
    const F16 a = x[0] + x[1], b = x[0] - x[1], c = x[2] + x[3], d = x[2] - x[3];
    x[0] = a + c, x[1] = b + d, x[2] = a - c, x[3] = b - d;
}

template <class T>
INLINE void read_turned(F16 (&x)[kTurn / 16], const T* row, int left) {
    alignas(64) T whole[kTurn] = {};
    if (left < kTurn) {
        for (int i = 0; i < left; ++i) whole[i] = row[i];
        row = whole;
    }
    for (int i = 0; i < kTurn / 16; ++i) x[i] = load(row + 16 * i);
    turn(x);
}

// A row that holds what is no number gets a scale that is none; it spoils its own results and no others.
template <class T>
void quantise(const void* from, int width, float* turned, uint8_t* to) {
    const T* row = static_cast<const T*>(from);
    const int padded = (width + kTurn - 1) / kTurn * kTurn;
    F16 top = all(0.0f), poison = all(0.0f);
    for (int i = 0; i < padded; i += kTurn) {
        F16 x[kTurn / 16];
        read_turned(x, row + i, width - i);
        for (int j = 0; j < kTurn / 16; ++j) {
            top = larger(top, larger(x[j], all(0.0f) - x[j]));
            poison = multiply_add(x[j], all(0.0f), poison);
            store(turned + i + 16 * j, x[j]);
        }
    }
    const float largest = highest(top);
    const float scale = largest < kSmallest ? 0.0f : largest / 127.0f / kTurnGain;
    const float whole = scale + sum(poison);
    __builtin_memcpy(to, &whole, sizeof whole);
    const F16 inverse = all(largest < kSmallest ? 0.0f : 127.0f / largest);
    for (int i = 0; i < padded; i += 16) store_bytes(to + kRowHead + i, load(turned + i) * inverse);
}
