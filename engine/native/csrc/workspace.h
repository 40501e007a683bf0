// The rows of one step on their way through the layers. Grows with the largest step and stays.
#pragma once

#include <memory>

#include "arena.h"
#include "kernels.h"
#include "model.h"

namespace noria {

constexpr int kRowChunk = 192;    // rows of one item of a product: they stay in the cache from panel to panel
constexpr int kStreamRows = 4;    // a product of so few only waits for memory, which the processor fetches itself
constexpr int kPrivateRows = 16;  // up to so many rows are normalised by each thread for itself

// Strides count elements; their bytes are an odd number of cache lines, so that the rows of a tile do not
// fall into the same cache sets.
class Workspace {
public:
    explicit Workspace(const Model& model);
    // Room for that many rows, and for adapters with at most `ranks` for one product. Throws std::bad_alloc.
    void reserve(int rows, int ranks);

    // Row `row` of a buffer of the model's element type.
    char* typed(void* base, long row, long stride) const {
        return static_cast<char*>(base) + row * stride * element_;
    }

    long hidden_stride, normed_stride, fused_stride, seen_stride, gate_up_stride, gated_stride, router_stride;
    long quantised_stride, turned_stride, inner_stride = 0;
    float* hidden;   // residual stream
    void* normed;    // what a product reads, shared by the threads
    void* own;       // the same for few rows: [threads][kPrivateRows]
    float* fused;    // q, k and v side by side
    void* queries;   // [kv heads][rows * group][padded head]
    void* seen;      // what attention made
    float* last_hidden;  // the same two for the rows that the last layer finishes
    void* last_seen;
    float* branch;   // what attention or MLP made, where a norm stands behind them
    float* gate_up;  // unless the product itself is gated
    void* gated;
    float* router;      // what each row thinks of each expert
    void* parted_rows;  // what the experts read, the rows of each one after another; and
    float* parted_out;  // what they made
    void* inner;  // A x for a product's rows
    uint8_t* quantised;      // rows that an int8 matrix reads, shared by the threads
    uint8_t* own_quantised;  // the same for few rows: [threads][kPrivateRows]
    float* turned;           // one row of them under way: [threads]
    float* cos;   // [rotations][rows][turned / 2]
    float* sin;
    char* scratch;  // [threads][scratch_stride] of the attention kernel
    long scratch_stride;

private:
    void place(Arena* arena);

    const Model& model_;
    const int element_;
    int rows_ = 0;
    int ranks_ = 0;
    size_t counted_ = 0;
    std::unique_ptr<Arena> arena_;
};

}  // namespace noria
