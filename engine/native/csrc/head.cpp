#include "head.h"

#include <algorithm>
#include <tuple>

namespace noria {

void Head::reserve() {
    const int wanted = static_cast<int>(plan_.wanted.size()), drawn = plan_.drawn;
    count_ = 0;
    if (drawn > 0) lay_pass(0, drawn);
    for (int first = drawn; first < wanted; first += kPassRows) lay_pass(first, std::min(first + kPassRows, wanted));
    if (drawn < wanted && scored_ == nullptr)
        scored_.reset(new float[static_cast<size_t>(kPassRows) * model_.spec.vocab]);
    scores_stride_ = 0;
    for (int i = 0; i < count_; ++i)
        for (const Line& line : passes_[i].lines)
            if (line.parts != nullptr)
                scores_stride_ = std::max(scores_stride_, 16L * line.parts->tokens.head.panels);
    scores_.resize(model_.team.size() * scores_stride_);
}

void Head::lay_pass(int first, int end) {
    if (count_ == static_cast<int>(passes_.size())) passes_.emplace_back();
    Pass& pass = passes_[count_++];
    pass.first = first;
    lay_lines(pass, end);
    cut_shares(pass);
}

void Head::lay_lines(Pass& pass, int end) const {
    pass.lines.clear(), pass.places.clear(), pass.changes.clear();
    pass.adds = pass.changed = false;
    for (int i = pass.first; i < end; ++i) {
        const int row = plan_.wanted[i];
        const Change* changes = plan_.owners.changes()[row];
        const AdapterParts* parts = plan_.owners.parts(row);
        const bool other = parts != nullptr && parts->changes_head();
        const Matrix* matrix = other && parts->head.weights != nullptr ? &parts->head : &model_.head;
        pass.lines.push_back({matrix, changes, parts, i});
        pass.adds = pass.adds || (changes != nullptr && !changes[change()].none());
        pass.changed = pass.changed || pass.adds || other;
    }
    if (pass.changed)
        std::stable_sort(pass.lines.begin(), pass.lines.end(), [](const Line& a, const Line& b) {
            return std::tie(a.matrix, a.changes) < std::tie(b.matrix, b.changes);
        });
    for (const Line& line : pass.lines)
        pass.places.push_back(line.source - pass.first), pass.changes.push_back(line.changes);
}

void Head::cut_shares(Pass& pass) const {
    pass.shares.clear();
    for (size_t i = 0; i < pass.lines.size(); ++i) {
        if (pass.shares.empty() || pass.shares.back().matrix != pass.lines[i].matrix)
            pass.shares.push_back({pass.lines[i].matrix, static_cast<int>(i), 0, 0, 0});
        ++pass.shares.back().rows;
    }
    pass.items = 0;
    for (Share& share : pass.shares) {
        share.chunks = (share.rows + kRowChunk - 1) / kRowChunk;
        share.end = pass.items += share.matrix->panels * share.chunks;
    }
}

Head::Item Head::item(const Pass& pass, int index) const {
    const Share* share = pass.shares.data();
    while (index >= share->end) ++share;
    const int panels = share->matrix->panels, own = index - (share->end - panels * share->chunks);
    return {share, own % panels, own / panels};
}

// Into place `place` from `to` on.
void Head::normalise(const Line& line, int place, const float* hidden, void* to) const {
    const int wanted = plan_.wanted[line.source], row = plan_.trims ? line.source : wanted;
    kernels_.normalise(plan_.owners.norm(wanted, -1, NORIA_NORM_FINAL, model_.norm_final),
                       hidden + row * space_.hidden_stride, space_.typed(to, place, space_.normed_stride));
}

// What all threads need to know of a line.
void Head::read(const Pass& pass, int line, const float* hidden) {
    normalise(pass.lines[line], line, hidden, space_.normed);
    if (!pass.adds || pass.changes[line] == nullptr) return;
    const Change& own = pass.changes[line][change()];
    kernels_.inward(own, 0, own.ranks, space_.typed(space_.normed, line, space_.normed_stride), 0, model_.head.in, 1,
                    space_.typed(space_.inner, line, space_.inner_stride), 0);
}

void Head::work(Worker& worker, const float* hidden, const Results& to) {
    const int vocab = model_.spec.vocab;
    for (int i = 0; i < count_; ++i) {
        const Pass& pass = passes_[i];
        float* logits = pass.first < plan_.drawn ? to.logits : scored_.get();
        Product product{&model_.head};
        product.x_stride = space_.normed_stride;
        product.y = logits, product.y_stride = vocab, product.into = Into::kExact;
        product.places = pass.places.data();
        product.changes = pass.adds ? pass.changes.data() : nullptr, product.change = change();
        product.inner = space_.inner, product.inner_stride = space_.inner_stride;
        multiply(worker, pass, product, hidden);
        worker.phase(static_cast<int>(pass.lines.size()), [&](int line, int) {
            float* row = logits + static_cast<long>(pass.places[line]) * vocab;
            score_tokens(pass.lines[line].parts, line, worker.thread(), row);
            if (model_.spec.logit_softcap > 0.0f) kernels_.cap(row, vocab, model_.spec.logit_softcap);
            give(pass.lines[line], row, to);
        });
    }
}

// What is wanted of a row beside its logits, or in their stead.
void Head::give(const Line& line, float* logits, const Results& to) const {
    const int vocab = model_.spec.vocab, place = line.source - plan_.drawn;
    if (place < 0) {
        to.best[line.source] = kernels_.best(logits, vocab);
        return;
    }
    const long top = static_cast<long>(place) * to.top;
    kernels_.score(logits, vocab, plan_.targets[place],
                   {to.top, to.logprobs + place, to.ranks + place, to.top_ids + top, to.top_logprobs + top});
}

// Few rows of the model's own head are normalised by each thread for itself, as in the layers.
void Head::multiply(Worker& worker, const Pass& pass, Product product, const float* hidden) {
    const int rows = static_cast<int>(pass.lines.size());
    const bool own = rows <= kPrivateRows && !pass.changed, int8 = model_.head.int8;
    void* normed = space_.normed;
    if (own) {
        normed = space_.typed(space_.own, static_cast<long>(worker.thread()) * kPrivateRows, space_.normed_stride);
    } else {
        worker.phase(rows, [&](int line, int) { read(pass, line, hidden); });
    }
    product.x = normed;
    if (int8 && !own) quantiser_.shared(worker, product, rows);
    bool prepared = !own;
    worker.phase(pass.items, [&](int index, int following) {
        if (!prepared) {
            for (int line = 0; line < rows; ++line) normalise(pass.lines[line], line, hidden, normed);
            if (int8) quantiser_.own(worker, product, rows);
        }
        prepared = true;
        const Item now = item(pass, index);
        const int first = now.share->first_of(now.chunk), end = now.share->first_of(now.chunk + 1);
        const Item then = following < 0 ? now : item(pass, following);
        const bool fetches = following >= 0 && now.share->rows > kStreamRows;
        const Ahead ahead = foresee(pass, following < 0 ? -1 : then.panel);
        product.matrix = now.share->matrix, product.ahead = &ahead;
        kernels_.multiply(product, now.panel, first, end - first,
                          fetches ? then.share->matrix->panel(then.panel) : nullptr);
    });
}

// What the adapters add to the logits of a panel is asked for while the one before is computed; -1: none.
Ahead Head::foresee(const Pass& pass, int panel) const {
    Ahead ahead;
    const Change* last = nullptr;
    for (size_t line = 0; pass.adds && panel >= 0 && line < pass.lines.size(); ++line) {
        const Change* own = pass.changes[line] == nullptr ? nullptr : pass.changes[line] + change();
        if (own == nullptr || own == last || own->ranks == 0) continue;
        const Block* blocks = own->blocks + 2 * panel;
        ahead.add(own->b + blocks[0].at, (blocks[2].at - blocks[0].at + 63) / 64);
        last = own;
    }
    return ahead;
}

// Logits of single tokens from the adapter's own rows.
void Head::score_tokens(const AdapterParts* parts, int line, int thread, float* logits) {
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
