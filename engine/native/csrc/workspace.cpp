#include "workspace.h"

#include <algorithm>
#include <new>

namespace noria {

namespace {

long odd_lines(long columns, int element) { return ((columns * element + 63) / 64 | 1) * 64 / element; }

}  // namespace

Workspace::Workspace(const Model& model) : model_(model), element_(model.element()) {
    const Layer& layer = model.layers[0];
    const Heads heads = model.heads_of(layer);
    const Mlp& mlp = layer.experts.empty() ? layer.mlp : layer.experts[0];
    hidden_stride = odd_lines(model.padded_hidden(), 4);
    normed_stride = odd_lines(model.padded_hidden(), element_);
    fused_stride = odd_lines(layer.qkv.panels * kPanel, 4);
    seen_stride = odd_lines(heads.heads * heads.head_dim, element_);
    gate_up_stride = odd_lines(mlp.gate_up.panels * kPanel, 4);
    gated_stride = odd_lines(mlp.gate_up.panels * model.gate().columns(), element_);
    router_stride = odd_lines(layer.router.panels * kPanel, 4);
    const int widest = std::max({layer.qkv.k, layer.o.k, mlp.down.k});
    quantised_stride = model.spec.int8_weights ? odd_lines(kRowHead + widest, 1) : 0;
    turned_stride = model.spec.int8_weights ? odd_lines(widest, 4) : 0;
    scratch_stride = Arena::rounded(model.kernels.scratch_bytes);
}

void Workspace::reserve(int rows, int ranks) {
    if (rows <= rows_ && ranks <= ranks_) return;
    rows_ = std::max({rows, rows_, 64});
    ranks_ = std::max(ranks, ranks_);
    inner_stride = odd_lines(ranks_, element_);
    counted_ = 0;
    place(nullptr);
    arena_.reset();
    try {
        arena_ = std::make_unique<Arena>(counted_);
    } catch (const std::bad_alloc&) {
        rows_ = ranks_ = 0;  // nothing is there: the next step, however small, has to ask anew
        throw;
    }
    place(arena_.get());
}

// Without an arena it counts, with one it places.
void Workspace::place(Arena* arena) {
    const auto take = [&](size_t bytes) -> void* {
        counted_ += Arena::rounded(bytes);
        return arena == nullptr ? nullptr : arena->take(bytes);
    };
    const auto floats = [&](long count) { return static_cast<float*>(take(count * sizeof(float))); };
    const Heads heads = model_.heads_of(model_.layers[0]);
    const noria_spec& spec = model_.spec;
    const long rows = rows_, angles = rows * spec.rotations * spec.turned / 2;
    const long parted = spec.experts == 0 ? 0 : rows * spec.experts_chosen, mlp_rows = spec.experts == 0 ? rows : parted;
    hidden = floats(rows * hidden_stride);
    normed = take(rows * normed_stride * element_);
    own = take(static_cast<long>(model_.team.size()) * kPrivateRows * normed_stride * element_);
    fused = floats(rows * fused_stride);
    queries = take(rows * heads.heads * heads.padded_dim * element_);
    seen = take(rows * seen_stride * element_);
    last_hidden = floats(rows * hidden_stride);
    last_seen = take(rows * seen_stride * element_);
    branch = floats(spec.norms_after ? rows * hidden_stride : 0);
    // SiLU is applied before the product is stored.
    gate_up = floats(model_.fuses_gate() ? 0 : mlp_rows * gate_up_stride);
    gated = take(mlp_rows * gated_stride * element_);
    router = floats(spec.experts == 0 ? 0 : rows * router_stride);
    parted_rows = take(parted * normed_stride * element_);
    parted_out = floats(parted * hidden_stride);
    inner = take(rows * inner_stride * element_);
    quantised = static_cast<uint8_t*>(take(std::max(rows, parted) * quantised_stride));
    own_quantised = static_cast<uint8_t*>(take(model_.team.size() * kPrivateRows * quantised_stride));
    turned = floats(model_.team.size() * turned_stride);
    cos = floats(angles);
    sin = floats(angles);
    scratch = static_cast<char*>(take(model_.team.size() * scratch_stride));
}

}  // namespace noria
