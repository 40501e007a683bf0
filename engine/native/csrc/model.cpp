#include "model.h"

#include <algorithm>
#include <cstring>

#include "pack.h"
#include "pack_int8.h"

namespace noria {

namespace {

constexpr double kLog2E = 1.4426950408889634;

constexpr int rounded(int n, int unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Model::Model(const noria_spec& given, const Kernels& table)
    : float32(given.float32 != 0),
      spec(given),
      kernels(table),
      rotary(given.rotary, given.rotary + given.head_dim / 2),
      layers(given.layers),
      embedding(nullptr),
      adapters(given.layers, float32),
      team(given.threads) {
    lay_out(nullptr);
    weights_ = std::make_unique<Arena>(counted_);
    lay_out(weights_.get());
    const size_t layer_bytes = Arena::rounded(heads_of(layers[0]).block_elements * element() * spec.num_blocks);
    int depth = 0;
    for (int i = 0; i < spec.layers; ++i) depth = std::max(depth, given.places[2 * i + 1] + 1);
    cache_ = std::make_unique<Arena>(layer_bytes * depth);
    for (int i = 0; i < depth; ++i) caches_.push_back(static_cast<char*>(cache_->take(layer_bytes)));
    for (int i = 0; i < spec.layers; ++i) {
        layers[i].window = given.windows[i];
        layers[i].group = given.places[2 * i];
        layers[i].cache = caches_[given.places[2 * i + 1]];
    }
}

// Twice the same walk: without an arena it counts, with one it places. The order is that of reading.
void Model::lay_out(Arena* arena) {
    const int queries = spec.heads * spec.head_dim, keys = spec.kv_heads * spec.head_dim;
    const auto vector = [&](int n) {
        const size_t bytes = rounded(n, kPanel) * sizeof(float);
        counted_ += Arena::rounded(bytes);
        return arena == nullptr ? nullptr : reinterpret_cast<float*>(arena->take(bytes));
    };
    for (Layer& layer : layers) {
        layer.norm_attention = vector(spec.hidden);
        lay_matrix(arena, layer.qkv, queries + 2 * keys, spec.hidden, spec.qkv_bias);
        layer.q_norm = spec.qk_norm ? vector(spec.head_dim) : nullptr;
        layer.k_norm = spec.qk_norm ? vector(spec.head_dim) : nullptr;
        lay_matrix(arena, layer.o, spec.hidden, queries, spec.o_bias);
        layer.norm_mlp = vector(spec.hidden);
        lay_matrix(arena, layer.gate_up, 2 * rounded(spec.inner, 16), spec.hidden, spec.mlp_bias);
        lay_matrix(arena, layer.down, spec.hidden, spec.inner, spec.mlp_bias);
    }
    norm_final = vector(spec.hidden);
    lay_matrix(arena, head, spec.vocab, spec.hidden, false);
    if (!spec.tied) {
        const size_t bytes = static_cast<size_t>(spec.vocab) * spec.hidden * element();
        counted_ += Arena::rounded(bytes);
        if (arena != nullptr) embedding = arena->take(bytes);
    }
}

void Model::lay_matrix(Arena* arena, Matrix& matrix, int n, int k, bool bias) {
    matrix.n = n;
    matrix.int8 = spec.int8_weights != 0;
    matrix.in = rounded(k, 2);
    matrix.k = rounded(k, matrix.int8 ? kTurn : 2);
    matrix.panels = rounded(n, kPanel) / kPanel;
    matrix.panel_bytes = matrix.int8 ? static_cast<long>(kPanel) * matrix.k + sizeof(PanelEnd)
                                     : static_cast<long>(kPanel) * matrix.k * element();
    const size_t bytes = matrix.panels * matrix.panel_bytes, bias_bytes = matrix.panels * kPanel * sizeof(float);
    counted_ += Arena::rounded(bytes) + (bias ? Arena::rounded(bias_bytes) : 0);
    if (arena == nullptr) return;
    matrix.weights = arena->take(bytes);
    matrix.bias = bias ? reinterpret_cast<float*>(arena->take(bias_bytes)) : nullptr;
}

Heads Model::heads_of(const Layer& layer) const {
    Heads h;
    h.heads = spec.heads;
    h.kv_heads = spec.kv_heads;
    h.head_dim = spec.head_dim;
    h.padded_dim = rounded(spec.head_dim, 16);
    h.k_column = spec.heads * spec.head_dim;
    h.v_column = h.k_column + spec.kv_heads * spec.head_dim;
    h.q_norm = layer.q_norm;
    h.k_norm = layer.k_norm;
    h.eps = spec.eps;
    h.scale = static_cast<float>(kLog2E * spec.query_scale);
    h.softcap = static_cast<float>(kLog2E * spec.score_softcap);
    h.block_elements = 2L * kBlock * h.padded_dim * spec.kv_heads;
    return h;
}

void Model::copy_block(long source, long target) {
    const size_t bytes = heads_of(layers[0]).block_elements * element();
    for (char* cache : caches_) std::memmove(cache + target * bytes, cache + source * bytes, bytes);
}

int Model::part_in(int part) const {
    if (part == NORIA_O) return spec.heads * spec.head_dim;
    return part == NORIA_DOWN ? spec.inner : spec.hidden;
}

int Model::part_out(int part) const {
    switch (part) {
        case NORIA_Q: return spec.heads * spec.head_dim;
        case NORIA_K:
        case NORIA_V: return spec.kv_heads * spec.head_dim;
        case NORIA_GATE:
        case NORIA_UP: return spec.inner;
        case NORIA_HEAD: return spec.vocab;
        default: return spec.hidden;
    }
}

Place Model::place(int layer, int part) {
    const int n = part_out(part), queries = spec.heads * spec.head_dim;
    switch (part) {
        case NORIA_Q: return {&layers[layer].qkv, n, 0, 16};
        case NORIA_K: return {&layers[layer].qkv, n, queries, 16};
        case NORIA_V: return {&layers[layer].qkv, n, queries + n, 16};
        case NORIA_O: return {&layers[layer].o, n, 0, 16};
        case NORIA_GATE: return {&layers[layer].gate_up, n, 0, kPanel};
        case NORIA_UP: return {&layers[layer].gate_up, n, 16, kPanel};
        case NORIA_DOWN: return {&layers[layer].down, n, 0, 16};
        default: return {&head, n, 0, 16};
    }
}

void Model::put(int layer, int part, const void* source) {
    switch (part) {
        case NORIA_EMBEDDING:
            std::memcpy(embedding, source, static_cast<size_t>(spec.vocab) * spec.hidden * element());
            return;
        case NORIA_NORM_ATTENTION: return widen(float32, source, spec.hidden, layers[layer].norm_attention);
        case NORIA_NORM_MLP: return widen(float32, source, spec.hidden, layers[layer].norm_mlp);
        case NORIA_NORM_Q: return widen(float32, source, spec.head_dim, layers[layer].q_norm);
        case NORIA_NORM_K: return widen(float32, source, spec.head_dim, layers[layer].k_norm);
        case NORIA_NORM_FINAL: return widen(float32, source, spec.hidden, norm_final);
        default: break;
    }
    const Place at = place(layer, part);
    if (at.matrix->int8)
        return pack_int8({float32, source, at.n, part_in(part), at.matrix, at.first, at.pitch}, team);
    pack({float32, source, at.n, part_in(part), at.matrix->weights, kPanel, at.matrix->k, at.first, at.pitch}, team);
}

void Model::put_bias(int layer, int part, const void* source) {
    const Place at = place(layer, part);
    std::vector<float> bias(at.n);
    widen(float32, source, at.n, bias.data());
    for (int j = 0; j < at.n; ++j) at.matrix->bias[at.first + j / 16 * at.pitch + j % 16] = bias[j];
}

}  // namespace noria
