#include "experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace noria {

Mixture::Mixture(const Model& model, Workspace& space)
    : model_(model),
      kernels_(model.kernels),
      space_(space),
      quantiser_(model, space),
      ends_(model.spec.experts),
      parts_(model.spec.layers) {}

void Mixture::reserve(int rows) {
    const size_t size = static_cast<size_t>(rows) * model_.spec.experts_chosen;
    if (size <= chosen_.size()) return;
    chosen_.resize(size), shares_.resize(size), place_.resize(size);
    const size_t most = std::min<size_t>(size, model_.spec.experts + size / kRowChunk);
    for (std::vector<Part>& parts : parts_) parts.reserve(most);
}

void Mixture::work(Worker& worker, int index, float* hidden, int rows, const Owners& owners,
                   const Matrix* after) {
    const Layer& layer = model_.layers[index];
    std::vector<Part>& parts = parts_[index];
    rate(worker, index, hidden, rows, owners);
    worker.phase(rows, [&](int row, int) { choose(row); });
    worker.phase(1, [&](int, int) { part_rows(rows, parts); });
    gather(worker, rows);

    const int chosen = model_.spec.experts_chosen, parted = rows * chosen;
    Product inward{};
    inward.x = space_.parted_rows, inward.x_stride = space_.normed_stride;
    inward.y = space_.gate_up, inward.y_stride = space_.gate_up_stride;
    inward.into = model_.fuses_gate() ? Into::kSiluGated : Into::kGated, inward.gate = model_.gate();
    inward.out = space_.gated, inward.out_stride = space_.gated_stride;
    multiply(worker, inward, parts, parted, [&](int expert) { return &layer.experts[expert].gate_up; }, nullptr);

    Product outward{};
    outward.x = space_.gated, outward.x_stride = space_.gated_stride;
    outward.y = space_.parted_out, outward.y_stride = space_.hidden_stride;
    multiply(worker, outward, parts, parted, [&](int expert) { return &layer.experts[expert].down; }, after);

    const int width = model_.padded_hidden();
    worker.phase(rows, [&](int row, int) {
        for (int i = row * chosen; i < (row + 1) * chosen; ++i)
            kernels_.add_share(space_.parted_out + place_[i] * space_.hidden_stride, shares_[i], width,
                               hidden + row * space_.hidden_stride);
    });
}

// What each row thinks of each expert.
void Mixture::rate(Worker& worker, int index, const float* hidden, int rows, const Owners& owners) {
    const Layer& layer = model_.layers[index];
    worker.phase(rows, [&](int row, int) {
        kernels_.normalise(owners.norm(row, index, NORIA_NORM_MLP, layer.before_mlp),
                           hidden + row * space_.hidden_stride, space_.typed(space_.normed, row, space_.normed_stride));
    });
    Product rating{&layer.router};
    rating.x = space_.normed, rating.x_stride = space_.normed_stride;
    rating.y = space_.router, rating.y_stride = space_.router_stride;
    worker.phase(layer.router.panels, [&](int panel, int following) {
        kernels_.multiply(rating, panel, 0, rows, following < 0 ? nullptr : layer.router.panel(following));
    });
}

// The experts with the highest shares of the softmax; of equals the first.
void Mixture::choose(int row) {
    const int chosen = model_.spec.experts_chosen, experts = model_.spec.experts;
    const float* rating = space_.router + row * space_.router_stride;
    int* own = chosen_.data() + row * chosen;
    for (int i = 0; i < chosen; ++i) {
        int best = -1;
        for (int expert = 0; expert < experts; ++expert)
            if (std::find(own, own + i, expert) == own + i && (best < 0 || rating[expert] > rating[best]))
                best = expert;
        own[i] = best;
    }
    const float top = rating[own[0]];
    std::sort(own, own + chosen);
    float all = 0.0f, taken = 0.0f, *shares = shares_.data() + row * chosen;
    for (int expert = 0; expert < experts; ++expert) all += std::exp(rating[expert] - top);
    for (int i = 0; i < chosen; ++i) taken += shares[i] = std::exp(rating[own[i]] - top);
    for (int i = 0; i < chosen; ++i) shares[i] /= model_.spec.shares_sum ? taken : all;
}

// Which expert's rows stand where.
void Mixture::part_rows(int rows, std::vector<Part>& parts) {
    const int count = rows * model_.spec.experts_chosen;
    std::fill(ends_.begin(), ends_.end(), 0);
    for (int i = 0; i < count; ++i) ++ends_[chosen_[i]];
    parts.clear();
    int first = 0;
    for (int expert = 0; expert < model_.spec.experts; ++expert) {
        const int end = first + ends_[expert];
        ends_[expert] = first;
        for (; first < end; first += parts.back().count)
            parts.push_back({expert, first, std::min(kRowChunk, end - first)});
    }
    for (int i = 0; i < count; ++i) place_[i] = ends_[chosen_[i]]++;
}

void Mixture::gather(Worker& worker, int rows) {
    const int chosen = model_.spec.experts_chosen;
    const size_t bytes = space_.normed_stride * model_.element();
    worker.phase(rows, [&](int row, int) {
        for (int i = row * chosen; i < (row + 1) * chosen; ++i)
            std::memcpy(space_.typed(space_.parted_rows, place_[i], space_.normed_stride),
                        space_.typed(space_.normed, row, space_.normed_stride), bytes);
    });
}

// The same product of each expert with its part of the rows.
template <class MatrixOf>
void Mixture::multiply(Worker& worker, Product product, const std::vector<Part>& parts, int rows,
                       MatrixOf matrix_of, const Matrix* after) {
    product.matrix = matrix_of(0);
    const int panels = product.matrix->panels;
    if (product.matrix->int8) quantiser_.shared(worker, product, rows);
    const auto panel_of = [&](int item) { return matrix_of(parts[item / panels].expert)->panel(item % panels); };
    worker.phase(static_cast<int>(parts.size()) * panels, [&](int item, int following) {
        const Part& part = parts[item / panels];
        Product own = product;
        own.matrix = matrix_of(part.expert);
        const char* next = following >= 0 ? panel_of(following)
                           : after == nullptr ? nullptr : after->panel(worker.first_of(after->panels));
        kernels_.multiply(own, item % panels, part.first, part.count, next);
    });
}

}  // namespace noria
