#include "head.h"

#include <algorithm>
#include <tuple>

namespace noria {

void Head::reserve() {
    lay_lines();
    cut_shares();
    scores_stride_ = 0;
    for (const Line& line : lines_)
        if (line.parts != nullptr) scores_stride_ = std::max(scores_stride_, 16L * line.parts->tokens.head.panels);
    scores_.resize(model_.team.size() * scores_stride_);
}

void Head::lay_lines() {
    lines_.clear(), places_.clear(), changes_.clear();
    adds_ = changed_ = false;
    for (size_t i = 0; i < plan_.sampled.size(); ++i) {
        const int row = plan_.sampled[i];
        const Change* changes = plan_.owners.changes()[row];
        const AdapterParts* parts = plan_.owners.parts(row);
        const bool other = parts != nullptr && parts->changes_head();
        const Matrix* matrix = other && parts->head.weights != nullptr ? &parts->head : &model_.head;
        lines_.push_back({matrix, changes, parts, static_cast<int>(i)});
        adds_ = adds_ || (changes != nullptr && !changes[change()].none());
        changed_ = changed_ || adds_ || other;
    }
    if (changed_)
        std::stable_sort(lines_.begin(), lines_.end(), [](const Line& a, const Line& b) {
            return std::tie(a.matrix, a.changes) < std::tie(b.matrix, b.changes);
        });
    for (const Line& line : lines_) places_.push_back(line.source), changes_.push_back(line.changes);
}

void Head::cut_shares() {
    shares_.clear();
    for (size_t i = 0; i < lines_.size(); ++i) {
        if (shares_.empty() || shares_.back().matrix != lines_[i].matrix)
            shares_.push_back({lines_[i].matrix, static_cast<int>(i), 0, 0, 0});
        ++shares_.back().rows;
    }
    items_ = 0;
    for (Share& share : shares_) {
        share.chunks = (share.rows + kRowChunk - 1) / kRowChunk;
        share.end = items_ += share.matrix->panels * share.chunks;
    }
}

Head::Item Head::item(int index) const {
    const Share* share = shares_.data();
    while (index >= share->end) ++share;
    const int panels = share->matrix->panels, own = index - (share->end - panels * share->chunks);
    return {share, own % panels, own / panels};
}

// Into the line's place from `to` on.
void Head::normalise(int line, const float* hidden, void* to) const {
    const int sampled = plan_.sampled[lines_[line].source], row = plan_.trims ? lines_[line].source : sampled;
    kernels_.normalise(plan_.owners.norm(sampled, -1, NORIA_NORM_FINAL, model_.norm_final),
                       hidden + row * space_.hidden_stride, space_.typed(to, line, space_.normed_stride));
}

// What all threads need to know of a line.
void Head::read(int line, const float* hidden) {
    normalise(line, hidden, space_.normed);
    if (!adds_ || changes_[line] == nullptr) return;
    const Change& own = changes_[line][change()];
    kernels_.inward(own, 0, own.ranks, space_.typed(space_.normed, line, space_.normed_stride), 0, model_.head.in, 1,
                    space_.typed(space_.inner, line, space_.inner_stride), 0);
}

void Head::work(Worker& worker, const float* hidden, float* logits, int32_t* best) {
    const int rows = static_cast<int>(lines_.size()), vocab = model_.spec.vocab;
    if (rows == 0) return;
    Product product{&model_.head};
    product.x_stride = space_.normed_stride;
    product.y = logits, product.y_stride = vocab, product.into = Into::kExact;
    product.places = places_.data();
    product.changes = adds_ ? changes_.data() : nullptr, product.change = change();
    product.inner = space_.inner, product.inner_stride = space_.inner_stride;
    multiply(worker, product, hidden);
    worker.phase(rows, [&](int i, int) {
        float* row = logits + static_cast<long>(places_[i]) * vocab;
        score_tokens(i, worker.thread(), row);
        if (model_.spec.logit_softcap > 0.0f) kernels_.cap(row, vocab, model_.spec.logit_softcap);
        best[places_[i]] = kernels_.best(row, vocab);
    });
}

// Few rows of the model's own head are normalised by each thread for itself, as in the layers.
void Head::multiply(Worker& worker, Product product, const float* hidden) {
    const int rows = static_cast<int>(lines_.size());
    const bool own = rows <= kPrivateRows && !changed_, int8 = model_.head.int8;
    void* normed = space_.normed;
    if (own) {
        normed = space_.typed(space_.own, static_cast<long>(worker.thread()) * kPrivateRows, space_.normed_stride);
    } else {
        worker.phase(rows, [&](int line, int) { read(line, hidden); });
    }
    product.x = normed;
    if (int8 && !own) quantiser_.shared(worker, product, rows);
    bool prepared = !own;
    worker.phase(items_, [&](int index, int following) {
        if (!prepared) {
            for (int line = 0; line < rows; ++line) normalise(line, hidden, normed);
            if (int8) quantiser_.own(worker, product, rows);
        }
        prepared = true;
        const Item now = item(index);
        const int first = now.share->first_of(now.chunk), end = now.share->first_of(now.chunk + 1);
        const Item then = following < 0 ? now : item(following);
        const bool fetches = following >= 0 && now.share->rows > kStreamRows;
        const Ahead ahead = foresee(following < 0 ? -1 : then.panel);
        product.matrix = now.share->matrix, product.ahead = &ahead;
        kernels_.multiply(product, now.panel, first, end - first,
                          fetches ? then.share->matrix->panel(then.panel) : nullptr);
    });
}

// What the adapters add to the logits of a panel is asked for while the one before is computed; -1: none.
Ahead Head::foresee(int panel) const {
    Ahead ahead;
    const Change* last = nullptr;
    for (size_t line = 0; adds_ && panel >= 0 && line < lines_.size(); ++line) {
        const Change* own = changes_[line] == nullptr ? nullptr : changes_[line] + change();
        if (own == nullptr || own == last || own->ranks == 0) continue;
        const Block* blocks = own->blocks + 2 * panel;
        ahead.add(own->b + blocks[0].at, (blocks[2].at - blocks[0].at + 63) / 64);
        last = own;
    }
    return ahead;
}

// Logits of single tokens from the adapter's own rows.
void Head::score_tokens(int line, int thread, float* logits) {
    const AdapterParts* parts = lines_[line].parts;
    if (parts == nullptr || parts->tokens.head.weights == nullptr) return;
    const OwnTokens& tokens = parts->tokens;
    float* scores = scores_.data() + thread * scores_stride_;
    std::fill(scores, scores + scores_stride_, 0.0f);
    const void* x = space_.typed(space_.normed, line, space_.normed_stride);
    for (int panel = 0; panel < tokens.head.panels; ++panel)
        kernels_.expand(tokens.head, panel, x, 0, 1, scores, 0, 16);
    for (size_t i = 0; i < tokens.ids.size(); ++i) logits[tokens.ids[i]] = scores[i];
}

}  // namespace noria
