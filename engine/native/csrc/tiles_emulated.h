// What tiles_amx.h does, in plain code: so that the products' layouts and tails are tested where there is no AMX.

class EmulatedTiles {
public:
    explicit EmulatedTiles(int rows) : rows_(rows) {}

    template <int TILE>
    void zero() {
        __builtin_memset(tiles_[TILE], 0, sizeof tiles_[TILE]);
    }
    template <int TILE>
    void load(const void* from, long stride) {
        for (int row = 0; row < rows_of(TILE); ++row)
            __builtin_memcpy(tiles_[TILE][row], static_cast<const char*>(from) + row * stride, 64);
    }
    template <int TILE>
    void store(float* to, long stride) const {
        for (int row = 0; row < rows_of(TILE); ++row)
            __builtin_memcpy(reinterpret_cast<char*>(to) + row * stride, tiles_[TILE][row], 64);
    }
    // As the processor's manual has it: the first and the second terms of all pairs are summed apart, then
    // together, then to what was there.
    template <int SUMS, int X, int WEIGHTS>
    void multiply() {
        for (int row = 0; row < rows_; ++row) {
            float firsts[16] = {}, seconds[16] = {}, sums[16];
            for (int pair = 0; pair < 16; ++pair) {
                for (int column = 0; column < 16; ++column) {
                    firsts[column] = __builtin_fmaf(term<X>(row, 2 * pair), term<WEIGHTS>(pair, 2 * column),
                                                    firsts[column]);
                    seconds[column] = __builtin_fmaf(term<X>(row, 2 * pair + 1),
                                                     term<WEIGHTS>(pair, 2 * column + 1), seconds[column]);
                }
            }
            __builtin_memcpy(sums, tiles_[SUMS][row], 64);
            for (int column = 0; column < 16; ++column) sums[column] += firsts[column] + seconds[column];
            __builtin_memcpy(tiles_[SUMS][row], sums, 64);
        }
    }

private:
    int rows_of(int tile) const { return tile < 6 ? rows_ : 16; }
    template <int TILE>
    float term(int row, int place) const {
        bf16 x;
        __builtin_memcpy(&x, tiles_[TILE][row] + 2 * place, 2);
        return wide(x);
    }

    int rows_;
    char tiles_[8][16][64];
};
