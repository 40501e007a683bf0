// One model: its packed weights, its cache, its adapters, and the work space of a step.
#pragma once

#include <memory>
#include <vector>

#include "adapters.h"
#include "api.h"
#include "arena.h"
#include "kernels.h"
#include "team.h"

namespace noria {

struct Layer {
    float* norm_attention;
    Matrix qkv;
    float* q_norm;  // none without QK norm
    float* k_norm;
    Matrix o;
    float* norm_mlp;
    Matrix gate_up;  // 16 columns of the gate, 16 of the other, in turn
    Matrix down;
    int window;
    int group;    // whose blocks hold its keys and values
    void* cache;  // shared with the layers of other groups that have the same place in a block
};

// Where an input matrix lands in a packed one: row j goes to column first + j / 16 * pitch + j % 16.
struct Place {
    Matrix* matrix;
    int n;
    int first;
    int pitch;
};

class Model {
public:
    // Throws std::bad_alloc. `spec` has been checked.
    Model(const noria_spec& spec, const Kernels& kernels);

    void put(int layer, int part, const void* source);
    void put_bias(int layer, int part, const void* source);

    // Keys and values of a cache block, in every layer of its group.
    void copy_block(long source, long target);

    int element() const { return float32 ? 4 : 2; }
    // Columns of a part's input and output.
    int part_in(int part) const;
    int part_out(int part) const;
    Heads heads_of(const Layer& layer) const;

    const bool float32;
    const noria_spec spec;
    const Kernels& kernels;
    const std::vector<float> rotary;
    std::vector<Layer> layers;
    float* norm_final;
    Matrix head;
    void* embedding;  // none where tied
    Adapters adapters;
    Team team;

private:
    Place place(int layer, int part);
    void lay_out(Arena* arena);
    void lay_matrix(Arena* arena, Matrix& matrix, int n, int k, bool bias);

    size_t counted_ = 0;  // bytes, in the first pass of lay_out
    std::unique_ptr<Arena> weights_;
    std::unique_ptr<Arena> cache_;
    std::vector<char*> caches_;  // of each place in a block
};

}  // namespace noria
