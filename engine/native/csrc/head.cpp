#include "head.h"

#include <algorithm>
#include <tuple>

namespace noria {

void Head::reserve() {
    lay_lines();
    cut_shares();
    inner_stride_ = scores_stride_ = 0;
    for (const Line& line : lines_) {
        if (line.parts == nullptr) continue;
        inner_stride_ = std::max(inner_stride_, 16L * line.parts->head.a.panels * model_.element());
        scores_stride_ = std::max(scores_stride_, 16L * line.parts->tokens.head.panels);
    }
    inner_.resize(lines_.size() * inner_stride_);
    scores_.resize(model_.team.size() * scores_stride_);
}

void Head::lay_lines() {
    lines_.clear(), places_.clear();
    changed_ = false;
    for (size_t i = 0; i < plan_.sampled.size(); ++i) {
        const AdapterParts* parts = plan_.owners.parts(plan_.sampled[i]);
        const bool replaces = parts != nullptr && parts->head.replaces();
        lines_.push_back({parts, static_cast<int>(i), replaces ? &parts->head.matrix : &model_.head});
        changed_ = changed_ || (parts != nullptr && parts->changes_head());
    }
    if (changed_)
        std::stable_sort(lines_.begin(), lines_.end(), [](const Line& a, const Line& b) {
            return std::tie(a.matrix, a.parts) < std::tie(b.matrix, b.parts);
        });
    for (const Line& line : lines_) places_.push_back(line.source);
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
    const AdapterParts* parts = lines_[line].parts;
    if (parts == nullptr || parts->head.b.weights == nullptr) return;
    const void* x = space_.typed(space_.normed, line, space_.normed_stride);
    kernels_.shrink(parts->head.a, x, 0, 1, inner_.data() + line * inner_stride_, 0);
}

void Head::work(Worker& worker, const float* hidden, float* logits, int32_t* best) {
    const int rows = static_cast<int>(lines_.size()), vocab = model_.spec.vocab;
    if (rows == 0) return;
    Product product{&model_.head};
    product.x_stride = space_.normed_stride;
    product.y = logits, product.y_stride = vocab, product.into = Into::kExact;
    product.places = places_.data();
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
        product.matrix = now.share->matrix;
        kernels_.multiply(product, now.panel, first, end - first,
                          fetches ? then.share->matrix->panel(then.panel) : nullptr);
        for (int line = first; changed_ && line < end; ++line) change(line, now.panel, product.y);
    });
}

// What an adapter makes of the logits of one panel.
void Head::change(int line, int panel, float* logits) const {
    const AdapterParts* parts = lines_[line].parts;
    if (parts == nullptr || !parts->head.adds()) return;
    const HeadChange& head = parts->head;
    const long vocab = model_.spec.vocab, first = panel * static_cast<long>(kPanel);
    const long end = std::min(vocab, first + kPanel);
    float* row = logits + lines_[line].source * vocab;
    if (head.gain != nullptr)
        for (long i = first; i < end; ++i) row[i] *= head.gain[i];
    if (head.shift != nullptr)
        for (long i = first; i < end; ++i) row[i] += head.shift[i];
    for (int half = 2 * panel; half < std::min(2 * panel + 2, head.b.panels); ++half)
        kernels_.expand(head.b, half, inner_.data() + line * inner_stride_, 0, 1, row, 0, 16);
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
