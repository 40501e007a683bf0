// What a step asks of the processor: one table of functions for each pair of instruction set and element
// type. The tables are made by kernels_*.cpp, which are the only files compiled for more than plain x86-64.
//
// T below is the element type of weights, operands and cache: bf16, or float in the float32 mode.
// Sums are always float32, and every sum runs over its terms in one fixed order, whatever rows are computed
// beside it: so a row's result does not depend on its company.
#pragma once

#include <cstdint>

namespace noria {

struct bf16 {
    uint16_t bits;
};

constexpr int kBlock = 16;      // tokens of one KV block; lanes of one vector
constexpr int kPanel = 32;      // output columns of one panel of a matrix
constexpr int kChunk = 64;      // tokens of one turn of the online softmax, aligned at absolute positions
constexpr int kTile = 12;       // rows of one attention item
constexpr int kMaxHeadDim = 256;
constexpr int kTurn = 64;       // columns that are turned together before they are quantised
constexpr float kTurnGain = 8;  // how much longer a turned row is
constexpr int kRowHead = 64;    // bytes of a quantised row before its numbers; the first four are its scale
constexpr float kSmallest = 1e-30f;  // a turned row that nowhere reaches this counts as zero

// Behind the int8 weights of a panel, for each of its columns.
struct PanelEnd {
    float scales[kPanel];
    int32_t shifts[kPanel];  // 128 times the sum of its weights
};

// Matrix [n, k] in panels of 32 columns: bf16 [n/32][k/2][32][2], float [n/32][k][32]; padded with zeros.
// int8: turned as in quantise.h, [n/32] of [k/4][32][4] and a PanelEnd.
struct Matrix {
    void* weights = nullptr;
    float* bias = nullptr;  // [panels * 32], or none
    bool int8 = false;
    int n = 0;
    int in = 0;             // numbers of a row that it multiplies, even
    int k = 0;              // the same up to whole lanes, or turns
    int panels = 0;
    long panel_bytes = 0;

    char* panel(long index) const { return static_cast<char*>(weights) + index * panel_bytes; }
    PanelEnd& panel_end(long index) const {
        return *reinterpret_cast<PanelEnd*>(panel(index + 1) - sizeof(PanelEnd));
    }
};

enum class Activation { kSilu, kRelu, kGelu, kGeluTanh };

// What becomes of the inward product of an MLP. Gated: activation(columns 0..15) * columns 16..31 of each
// panel, 16 columns. Else: activation of all 32.
struct Gate {
    Activation activation;
    bool gated;

    int columns() const { return gated ? kPanel / 2 : kPanel; }
};

enum class Into {
    kStore,     // y = result
    kAdd,       // y += result
    kSiluGated, // out = the result, gated with SiLU
    kGated,     // y = result, out = what `gate` makes of it
    kExact,     // row places[i] of y = result i, not a column more than n: y belongs to the caller of the step
};

// Sixteen columns of an adapter's B: T [terms / pack][16][pack], for terms first .. first + terms - 1 of A x.
struct Block {
    int at;  // byte of the adapter's B where it begins
    int first;
    int terms;  // even; 0: the columns are left alone
};

// What becomes of the rows y of a product for an adapter: gain * y + shift + B (A x).
struct Change {
    const char* a = nullptr;  // T, `ranks` rows with zeros behind the end of each
    long a_bytes = 0;         // from row to row
    int ranks = 0;            // of all modules of the product, even; 0: no delta
    const Block* blocks = nullptr;  // [2 * panels + 1] of the product's matrix, the last one empty
    const char* b = nullptr;        // block after block
    float* gain = nullptr;   // [panels * 32], or none; then there is a shift too
    float* shift = nullptr;

    bool none() const { return ranks == 0 && gain == nullptr; }
};

// Memory that is read after this item, in pieces: asked for meanwhile, as far as there is time.
struct Ahead {
    struct Piece {
        const char* at;
        int lines;  // of 64 bytes
    };
    static constexpr int kMost = 48;

    Piece pieces[kMost];
    int count = 0;

    void add(const void* at, long lines) {
        if (lines > 0 && count < kMost) pieces[count++] = {static_cast<const char*>(at), static_cast<int>(lines)};
    }
};

struct Product {
    const Matrix* matrix;
    const void* x = nullptr;  // T [rows, x_stride]
    long x_stride = 0;        // strides count elements
    float* y = nullptr;
    long y_stride = 0;
    Into into = Into::kStore;
    const int* places = nullptr;  // of the rows in y, for kExact
    void* out = nullptr;  // T
    long out_stride = 0;
    Gate gate = {};
    const uint8_t* quantised = nullptr;  // the rows of x as `quantise` makes them, for an int8 matrix
    long quantised_stride = 0;
    const Change* const* changes = nullptr;  // [rows] of each row's adapter, or none; none: no row has one
    int change = 0;                          // which of its adapter's changes a row takes
    const void* inner = nullptr;             // T [rows, inner_stride]: A x
    long inner_stride = 0;
    const Ahead* ahead = nullptr;            // beside the next panel, or none

    const Change* change_of(int row) const { return changes[row] == nullptr ? nullptr : changes[row] + change; }
};

// A matrix of an adapter in panels of 16 columns: bf16 [n/16][k/2][16][2], float [n/16][k][16].
struct Narrow {
    void* weights = nullptr;
    int n = 0;
    int k = 0;
    int panels = 0;
    long panel_elements = 0;
};

// A token's row becomes gain * row + B a, a row of `a` for each token.
struct EmbedDelta {
    const float* gain = nullptr;  // [width], or none
    const void* a = nullptr;      // T [vocab, b.k]
    Narrow b;                     // n = width

    bool none() const { return b.weights == nullptr; }
};

struct Embed {
    const void* rows;      // T [vocab, width], or none: then the head's panels are read
    const Matrix* panels;
    const void* places;    // T [positions, width], added to the scaled row; or none
    int width;
    float scale;
    const void* own = nullptr;          // T [width], the token's row instead of the table's; or none
    const EmbedDelta* delta = nullptr;  // before the row is scaled; or none
};

struct Norm {
    float* weight = nullptr;  // padded with zeros like the rows; none where there is no such norm
    float* bias = nullptr;    // of a LayerNorm; none: an RMSNorm
    float eps = 0.0f;
    int width = 0;
    int padded = 0;  // multiple of 16
};

// Where attention finds things. Cache of one layer: [block][kv head] of K then V, for 16 tokens each:
// K bf16 [head_dim/2][16 tokens][2], float [head_dim][16 tokens];
// V bf16 [head_dim/16][8 token pairs][16][2], float [head_dim/16][16 tokens][16].
// In int8 as attention_int8.h says.
struct Heads {
    int heads, kv_heads, head_dim, padded_dim;
    int turned;              // numbers of a head that rotate, from its start; even
    int k_column, v_column;  // where k and v begin in a row of the fused product
    const float* q_norm;     // [head_dim] or none
    const float* k_norm;
    float eps;
    float scale;    // of scores, in base 2: log2(e) times the model's own
    float softcap;  // of scaled scores, in base 2; 0: none
    long head_elements;   // of the cache: one kv head of one block
    long block_elements;  // one block of one layer
};

struct Rotation {
    const float* cos;  // [turned / 2] of one position
    const float* sin;
};

struct Span {
    const int32_t* table;  // block ids
    int start;             // position of its first new token
    int count;
    int row;               // of its first new token in the batch
};

struct Attend {
    const Heads* heads;
    const Span* span;
    const void* queries;  // T [count * group, padded_dim], of one kv head
    const void* cache;    // one layer
    void* out;            // T [batch rows, out_stride]
    long out_stride;
    int window;           // 0: none
    int kv_head;
    const Span* next;  // whose attention this thread computes afterwards, or none
    int next_head;
};

constexpr int kGroup = 64;      // values of a row that are passed over together where none of them is high enough
constexpr int kShareSum = 512;  // shares that are summed together: a draw looks for its place in these sums first

// How logits become shares: e^x of x = (logit - top) / temperature, where that is not below `least`.
struct Shares {
    float top, temperature, least;
};

// Where it is put down what a row says of a token, and of its `top` likeliest; as in noria_batch.
struct Score {
    int top;
    float* logprob;
    int32_t* rank;
    int32_t* top_ids;  // [top]
    float* top_logprobs;
};

struct Kernels {
    void (*embed)(const Embed&, int token, int place, float* out);
    void (*normalise)(const Norm&, const float* x, void* out);
    // y += x behind an RMSNorm
    void (*add_normed)(const Norm&, const float* x, float* y);
    // A row of `width` numbers T, even, to int8; `turned` has room for them up to whole turns.
    void (*quantise)(const void* row, int width, float* turned, uint8_t* to);
    // Rows first .. first + rows - 1 of one panel; `next` is fetched into the cache meanwhile (or none).
    void (*multiply)(const Product&, int panel, int first, int rows, const char* next);
    // The same rows and panel where the sums [rows] and the bias in them are there already.
    void (*deliver)(const Product&, int panel, int first, int rows, float (*sums)[kPanel]);
    // Terms first .. end - 1, both even, of A x for rows of `in` numbers, into out[row].
    void (*inward)(const Change&, int first, int end, const void* x, long x_stride, int in, int rows, void* out,
                   long out_stride);
    // y += the product of the rows of x with one panel, whose columns land at y + panel * pitch.
    void (*expand)(const Narrow&, int panel, const void* x, long x_stride, int rows, float* y, long y_stride,
                   int pitch);
    // x = cap * tanh(x / cap)
    void (*cap)(float* x, int count, float cap);
    // y += share * x
    void (*add_share)(const float* x, float share, int count, float* y);
    // Norm, turn and store the heads of one token that share one key.
    void (*prepare)(const Heads&, const float* fused, const Rotation&, int kv_head, void* queries,
                    void* block, int offset);
    // Query rows first .. first + rows - 1 (at most kTile) of one sequence and kv head.
    void (*attend)(const Attend&, int first, int rows, void* scratch);
    // The two of them for a cache in int8.
    void (*prepare_int8)(const Heads&, const float* fused, const Rotation&, int kv_head, void* queries,
                         void* block, int offset);
    void (*attend_int8)(const Attend&, int first, int rows, void* scratch);
    // Place of the highest of n logits, the first of several; -1: one of them is not finite.
    int (*best)(const float* logits, int n);
    // What the log-softmax of n logits says of one token and of the likeliest.
    void (*score)(const float* logits, int n, int token, const Score&);
    // The highest of n values.
    float (*highest)(const float* values, int n);
    // The steps of a draw, see draw.h.
    void (*share_out)(float* values, int n, const Shares&);
    void (*drop_below)(float* shares, int n, float least);
    double (*sum_up)(const float* shares, int n, double* sums);
    long scratch_bytes;
};

const Kernels& avx512_kernels(bool float32);
const Kernels& avx2_kernels(bool float32);
const Kernels& amx_kernels(bool float32);
// The same with the tiles worked out in plain code.
const Kernels& emulated_amx_kernels(bool float32);

}  // namespace noria
