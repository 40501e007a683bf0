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

// How a row is brought to whole numbers. One that holds what is no number gets a scale that is none: it spoils
// what is made of it and nothing else.
struct Rounding {
    F16 top = all(0.0f), poison = all(0.0f);

    INLINE_MEMBER void look(F16 x) {
        top = larger(top, larger(x, all(0.0f) - x));
        poison = multiply_add(x, all(0.0f), poison);
    }
    // What the numbers are multiplied with, so that none passes `steps`; what the whole ones are worth each.
    INLINE_MEMBER float inverse(float steps) const {
        const float largest = highest(top);
        return largest < kSmallest ? 0.0f : steps / largest;
    }
    INLINE_MEMBER float scale(float steps) const {
        const float largest = highest(top);
        return (largest < kSmallest ? 0.0f : largest / steps) + sum(poison);
    }
};

template <class T>
void quantise(const void* from, int width, float* turned, uint8_t* to) {
    const T* row = static_cast<const T*>(from);
    const int padded = (width + kTurn - 1) / kTurn * kTurn;
    Rounding rounding;
    for (int i = 0; i < padded; i += kTurn) {
        F16 x[kTurn / 16];
        read_turned(x, row + i, width - i);
        for (int j = 0; j < kTurn / 16; ++j) {
            rounding.look(x[j]);
            store(turned + i + 16 * j, x[j]);
        }
    }
    const float scale = rounding.scale(127.0f) / kTurnGain;
    __builtin_memcpy(to, &scale, sizeof scale);
    const F16 inverse = all(rounding.inverse(127.0f));
    for (int i = 0; i < padded; i += 16) store_bytes(to + kRowHead + i, load(turned + i) * inverse, kZero);
}
