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
      rotary(given.rotary, given.rotary + given.rotations * given.turned / 2),
      rotary_scales(given.rotary_scales, given.rotary_scales + given.rotations),
      layers(given.layers),
      team(given.threads) {
    for (Layer& layer : layers) layer.experts.resize(given.experts);
    lay_out(nullptr);
    weights_ = std::make_unique<Arena>(counted_);
    lay_out(weights_.get());
    const size_t layer_bytes = Arena::rounded(heads_of(layers[0]).block_elements * cache_element() * spec.num_blocks);
    int depth = 0;
    for (int i = 0; i < spec.layers; ++i) depth = std::max(depth, given.places[2 * i + 1] + 1);
    cache_ = std::make_unique<Arena>(layer_bytes * depth);
    for (int i = 0; i < depth; ++i) caches_.push_back(static_cast<char*>(cache_->take(layer_bytes)));
    for (int i = 0; i < spec.layers; ++i) {
        layers[i].window = given.windows[i];
        layers[i].rotation = given.rotation_of[i];
        layers[i].group = given.places[2 * i];
        layers[i].cache = caches_[given.places[2 * i + 1]];
    }
}

// Twice the same walk: without an arena it counts, with one it places. The order is that of reading.
void Model::lay_out(Arena* arena) {
    const size_t row = static_cast<size_t>(spec.hidden) * element();
    for (Layer& layer : layers) lay_layer(arena, layer);
    lay_norm(arena, norm_final);
    lay_matrix(arena, head, spec.vocab, spec.hidden, false);
    if (!spec.tied) embedding = lay_bytes(arena, spec.vocab * row);
    if (spec.learned_places > 0) places = lay_bytes(arena, spec.learned_places * row);
}

void Model::lay_layer(Arena* arena, Layer& layer) {
    const int queries = spec.heads * spec.head_dim, keys = spec.kv_heads * spec.head_dim;
    lay_norm(arena, layer.before_attention);
    lay_matrix(arena, layer.qkv, queries + 2 * keys, spec.hidden, spec.qkv_bias);
    if (spec.qk_norm) {
        layer.q_norm = lay_vector(arena, spec.head_dim);
        layer.k_norm = lay_vector(arena, spec.head_dim);
    }
    lay_matrix(arena, layer.o, spec.hidden, queries, spec.o_bias);
    if (spec.norms_after) lay_norm(arena, layer.after_attention);
    lay_norm(arena, layer.before_mlp);
    if (spec.experts > 0)
        // Never quantised: it is small, and its sums decide which experts compute.
        lay_matrix(arena, layer.router, spec.experts, spec.hidden, false, true);
    else
        lay_mlp(arena, layer.mlp);
    for (Mlp& expert : layer.experts) lay_mlp(arena, expert);
    if (spec.norms_after) lay_norm(arena, layer.after_mlp);
}

void Model::lay_mlp(Arena* arena, Mlp& mlp) {
    const int columns = spec.gated ? 2 * rounded(spec.inner, 16) : spec.inner;
    lay_matrix(arena, mlp.gate_up, columns, spec.hidden, spec.mlp_bias);
    lay_matrix(arena, mlp.down, spec.hidden, spec.inner, spec.mlp_bias);
}

void Model::lay_matrix(Arena* arena, Matrix& matrix, int n, int k, bool bias, bool exact) {
    matrix.n = n;
    matrix.int8 = spec.int8_weights != 0 && !exact;
    matrix.in = rounded(k, 2);
    matrix.k = rounded(k, matrix.int8 ? kTurn : 2);
    matrix.panels = rounded(n, kPanel) / kPanel;
    matrix.panel_bytes = matrix.int8 ? static_cast<long>(kPanel) * matrix.k + sizeof(PanelEnd)
                                     : static_cast<long>(kPanel) * matrix.k * element();
    matrix.weights = lay_bytes(arena, matrix.panels * matrix.panel_bytes);
    if (bias) matrix.bias = lay_vector(arena, n);
}

void Model::lay_norm(Arena* arena, Norm& norm) {
    norm.eps = spec.eps;
    norm.width = spec.hidden;
    norm.padded = padded_hidden();
    norm.weight = lay_vector(arena, spec.hidden);
    if (spec.layer_norm) norm.bias = lay_vector(arena, spec.hidden);
}

float* Model::lay_vector(Arena* arena, int n) {
    return static_cast<float*>(lay_bytes(arena, rounded(n, kPanel) * sizeof(float)));
}

void* Model::lay_bytes(Arena* arena, size_t bytes) {
    counted_ += Arena::rounded(bytes);
    return arena == nullptr ? nullptr : arena->take(bytes);
}

int Model::padded_hidden() const { return rounded(spec.hidden, kPanel); }

Heads Model::heads_of(const Layer& layer) const {
    Heads h;
    h.heads = spec.heads;
    h.kv_heads = spec.kv_heads;
    h.head_dim = spec.head_dim;
    h.padded_dim = rounded(spec.head_dim, 16);
    h.turned = spec.turned;
    h.k_column = columns(NORIA_K).first;
    h.v_column = columns(NORIA_V).first;
    h.q_norm = layer.q_norm;
    h.k_norm = layer.k_norm;
    h.eps = spec.eps;
    h.scale = static_cast<float>(kLog2E * spec.query_scale);
    h.softcap = static_cast<float>(kLog2E * spec.score_softcap);
    h.head_elements = 2L * kBlock * h.padded_dim + (spec.int8_cache ? 2 * kBlock * sizeof(float) : 0);
    h.block_elements = h.head_elements * spec.kv_heads;
    return h;
}

void Model::copy_block(long source, long target) {
    const size_t bytes = heads_of(layers[0]).block_elements * cache_element();
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
        case NORIA_ROUTER: return spec.experts;
        case NORIA_HEAD: return spec.vocab;
        default: return spec.hidden;
    }
}

Columns Model::columns(int part) const {
    const int n = part_out(part), queries = spec.heads * spec.head_dim;
    switch (part) {
        case NORIA_K: return {n, queries, 16};
        case NORIA_V: return {n, queries + n, 16};
        case NORIA_GATE: return {n, 0, kPanel};
        case NORIA_UP: return spec.gated ? Columns{n, 16, kPanel} : Columns{n, 0, 16};
        default: return {n, 0, 16};
    }
}

int Model::panels_of(Group group) const {
    const Layer& layer = layers[0];
    const Matrix* matrices[] = {&layer.qkv, &layer.o, &layer.mlp.gate_up, &layer.mlp.down, &head};
    return matrices[group]->panels;
}

Matrix& Model::matrix(int layer, int part) {
    switch (part) {
        case NORIA_Q:
        case NORIA_K:
        case NORIA_V: return layers[layer].qkv;
        case NORIA_O: return layers[layer].o;
        case NORIA_GATE:
        case NORIA_UP: return layers[layer].mlp.gate_up;
        case NORIA_DOWN: return layers[layer].mlp.down;
        case NORIA_ROUTER: return layers[layer].router;
        default: return head;
    }
}

Norm& Model::norm(int layer, int part) {
    switch (part) {
        case NORIA_NORM_ATTENTION: return layers[layer].before_attention;
        case NORIA_NORM_AFTER_ATTENTION: return layers[layer].after_attention;
        case NORIA_NORM_MLP: return layers[layer].before_mlp;
        case NORIA_NORM_AFTER_MLP: return layers[layer].after_mlp;
        default: return norm_final;
    }
}

void Model::put(int layer, int part, const void* source) {
    const size_t row = static_cast<size_t>(spec.hidden) * element();
    switch (part) {
        case NORIA_EMBEDDING: std::memcpy(embedding, source, spec.vocab * row); return;
        case NORIA_PLACES: std::memcpy(places, source, spec.learned_places * row); return;
        case NORIA_NORM_Q: return put_norm(source, spec.head_dim, layers[layer].q_norm);
        case NORIA_NORM_K: return put_norm(source, spec.head_dim, layers[layer].k_norm);
        default: break;
    }
    if (part >= NORIA_NORM_ATTENTION) return put_norm(source, spec.hidden, norm(layer, part).weight);
    pack_part(matrix(layer, part), part, source);
}

void Model::put_norm(const void* source, int count, float* to) {
    widen(float32, source, count, to);
    for (int i = 0; i < count; ++i) to[i] += spec.norm_offset;
}

void Model::put_bias(int layer, int part, const void* source) {
    if (part >= NORIA_NORM_ATTENTION) return widen(float32, source, spec.hidden, norm(layer, part).bias);
    const Columns at = columns(part);
    std::vector<float> bias(at.count);
    widen(float32, source, at.count, bias.data());
    float* to = matrix(layer, part).bias;
    for (int j = 0; j < at.count; ++j) to[at.first + j / 16 * at.pitch + j % 16] = bias[j];
}

void Model::put_expert(int layer, int expert, int part, const void* source) {
    Mlp& mlp = layers[layer].experts[expert];
    pack_part(part == NORIA_DOWN ? mlp.down : mlp.gate_up, part, source);
}

void Model::pack_part(Matrix& to, int part, const void* source) {
    const Columns at = columns(part);
    if (to.int8) return pack_int8({float32, source, at.count, part_in(part), &to, at.first, at.pitch}, team);
    pack({float32, source, at.count, part_in(part), to.weights, kPanel, to.k, at.first, at.pitch}, team);
}

}  // namespace noria
