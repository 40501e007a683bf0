// The tile registers of AMX, and what the products need of them. Tiles 0 to 3 hold sums, `rows` of 16 floats;
// 4 and 5 rows of x, `rows` of 32 bf16; 6 and 7 weights, 16 pairs of terms of 16 columns. tiles_emulated.h does
// the same in plain code.

class AmxTiles {
public:
    // The registers are this thread's until the object ends: nobody else's setting is met or left behind.
    explicit AmxTiles(int rows) {
        Shapes shapes;
        for (int tile = 0; tile < 8; ++tile) {
            shapes.row_bytes[tile] = 64;
            shapes.rows[tile] = static_cast<uint8_t>(tile < 6 ? rows : 16);
        }
        // The whole struct is an operand: all of it has to be written before.
        __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
    }
    ~AmxTiles() { __asm__ volatile("tilerelease"); }
    AmxTiles(const AmxTiles&) = delete;
    AmxTiles& operator=(const AmxTiles&) = delete;

    template <int TILE>
    INLINE_MEMBER void zero() {
        __asm__ volatile("tilezero %%tmm%c0" : : "i"(TILE));
    }
    // Rows of 64 bytes, `stride` bytes from one to the next.
    template <int TILE>
    INLINE_MEMBER void load(const void* from, long stride) {
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(TILE) : "memory");
    }
    template <int TILE>
    INLINE_MEMBER void store(float* to, long stride) {
        __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(TILE) : "memory");
    }
    // sums += x . weights
    template <int SUMS, int X, int WEIGHTS>
    INLINE_MEMBER void multiply() {
        __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(SUMS), "i"(X), "i"(WEIGHTS));
    }

private:
    struct alignas(64) Shapes {
        uint8_t palette = 1;
        uint8_t start = 0;
        uint8_t reserved[14] = {};
        uint16_t row_bytes[16] = {};
        uint8_t rows[16] = {};
    };
};
