// One model: its packed weights, its cache, its adapter slots, and the work space of a step.
#pragma once

#include <memory>
#include <vector>

#include "adapters.h"
#include "api.h"
#include "arena.h"
#include "kernels.h"
#include "team.h"

namespace noria {

struct Mlp {
    Matrix gate_up;  // 16 columns of the gate, 16 of the other, in turn; the other alone where it is not gated
    Matrix down;
};

struct Layer {
    Norm before_attention;
    Matrix qkv;
    float* q_norm = nullptr;  // none without QK norm
    float* k_norm = nullptr;
    Matrix o;
    Norm after_attention;  // the two behind are not in every family
    Norm before_mlp;
    Mlp mlp;  // not where there are experts
    Matrix router;
    std::vector<Mlp> experts;
    Norm after_mlp;
    int window;
    int rotation;  // which of the model's ways of rotating
    int group;     // whose blocks hold its keys and values
    void* cache;   // shared with the layers of other groups that have the same place in a block
};

// Where a part lands in its packed matrix: row j goes to column first + j / 16 * pitch + j % 16.
struct Columns {
    int count;
    int first;
    int pitch;
};

class Model {
public:
    // Throws std::bad_alloc. `spec` has been checked.
    Model(const noria_spec& spec, const Kernels& kernels);

    void put(int layer, int part, const void* source);
    void put_bias(int layer, int part, const void* source);
    void put_expert(int layer, int expert, int part, const void* source);

    // Keys and values of a cache block, in every layer of its group.
    void copy_block(long source, long target);

    int element() const { return float32 ? 4 : 2; }
    int cache_element() const { return spec.int8_cache ? 1 : element(); }
    // Columns of a part's input and output.
    int part_in(int part) const;
    int part_out(int part) const;
    Columns columns(int part) const;
    int panels_of(Group group) const;
    // Columns of the residual stream, up to whole panels.
    int padded_hidden() const;
    // Whether the inward product of an MLP is gated where it is summed.
    bool fuses_gate() const { return spec.gated != 0 && gate().activation == Activation::kSilu; }
    Gate gate() const { return {static_cast<Activation>(spec.activation), spec.gated != 0}; }
    Heads heads_of(const Layer& layer) const;

    const bool float32;
    const noria_spec spec;
    const Kernels& kernels;
    const std::vector<float> rotary;  // [rotations, turned / 2]
    const std::vector<float> rotary_scales;
    std::vector<Layer> layers;
    Norm norm_final;
    Matrix head;
    void* embedding = nullptr;  // none where tied
    void* places = nullptr;     // [places, hidden], none without learned positions
    Slots slots;
    Team team;

private:
    Matrix& matrix(int layer, int part);
    Norm& norm(int layer, int part);
    void pack_part(Matrix& matrix, int part, const void* source);
    void put_norm(const void* source, int count, float* to);
    void lay_out(Arena* arena);
    void lay_layer(Arena* arena, Layer& layer);
    void lay_mlp(Arena* arena, Mlp& mlp);
    // exact: never in int8
    void lay_matrix(Arena* arena, Matrix& matrix, int n, int k, bool bias, bool exact = false);
    void lay_norm(Arena* arena, Norm& norm);
    void* lay_bytes(Arena* arena, size_t bytes);
    float* lay_vector(Arena* arena, int n);

    size_t counted_ = 0;  // bytes, in the first pass of lay_out
    std::unique_ptr<Arena> weights_;
    std::unique_ptr<Arena> cache_;
    std::vector<char*> caches_;  // of each place in a block
};

}  // namespace noria
