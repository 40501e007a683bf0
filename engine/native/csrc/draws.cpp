#include "draws.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace noria {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The lowest of the fewest highest shares that come to `mass`, which all of them do. They are put in another order.
float nucleus_end(float* shares, float* end, double mass) {
    double above = 0.0;
    while (true) {
        const float low = std::min(shares[0], end[-1]), high = std::max(shares[0], end[-1]);
        const float pivot = std::max(low, std::min(high, shares[(end - shares) / 2]));
        float* const equals = std::partition(shares, end, [=](float share) { return share > pivot; });
        float* const lower = std::partition(equals, end, [=](float share) { return share == pivot; });
        double higher = above;
        for (const float* share = shares; share != equals; ++share) higher += *share;
        if (equals != shares && higher >= mass) {
            end = equals;
            continue;
        }
        above = higher + static_cast<double>(lower - equals) * pivot;
        if (above >= mass || lower == end) return pivot;
        shares = lower;
    }
}

// Where the sum of the shares first goes beyond `target`; always a token that has one.
int fall(const float* shares, int n, double target, const double* sums) {
    int first = 0;
    double sum = 0.0;
    for (int i = 0; i < n; i += kShareSum) {
        const double part = sums[i / kShareSum];
        if (part == 0.0) continue;
        if (first != i) sum += sums[first / kShareSum];
        first = i;
        if (sum + part > target) break;
    }
    int last = first;
    for (int i = first; i < std::min(first + kShareSum, n) && sum <= target; ++i) {
        if (shares[i] == 0.0f) continue;
        last = i;
        sum += shares[i];
    }
    return last;
}

}  // namespace

void Draws::run(const float* logits, noria_draw* rows, int count) {
    model_.team.settle();
    const size_t vocab = model_.spec.vocab;
    rooms_.resize(model_.team.size());
    for (Room& room : rooms_) {
        room.values.resize(vocab), room.found.resize(vocab), room.counts.resize(vocab);
        room.sums.resize((vocab + kShareSum - 1) / kShareSum);
    }
    logits_ = logits, rows_ = rows, count_ = count;
    model_.team.run(*this, 1);
}

void Draws::work(Worker& worker) {
    worker.phase(count_, [&](int i, int) { finish(rows_[i], rooms_[worker.thread()]); });
}

void Draws::finish(noria_draw& row, Room& room) const {
    const int vocab = model_.spec.vocab;
    const float* logits = logits_ + static_cast<long>(row.row) * vocab;
    if (row.token < 0) {
        std::copy(logits, logits + vocab, room.values.begin());
        row.token = draw(row, room);
    }
    if (row.token >= 0 && row.top >= 0)
        kernels_.score(logits, vocab, row.token, {row.top, &row.logprob, &row.rank, row.top_ids, row.top_logprobs});
}

int Draws::draw(const noria_draw& row, Room& room) const {
    const int vocab = model_.spec.vocab;
    float* const values = room.values.data();
    adjust(row, room);
    const float top = kernels_.highest(values, vocab);
    if (!(top > kNever && top < -kNever)) return -1;
    if (row.temperature == 0.0f) return static_cast<int>(std::find(values, values + vocab, top) - values);
    float least = row.least;
    if (row.top_k > 0 && row.top_k < vocab)
        least = std::max(least, (kth_highest(row.top_k, room) - top) / row.temperature);
    kernels_.share_out(values, vocab, {top, row.temperature, least});
    double total = kernels_.sum_up(values, vocab, room.sums.data());
    if (row.top_p < 1.0f) total = keep_nucleus(row.top_p * total, total, room);
    return fall(values, vocab, row.uniform * total, room.sums.data());
}

void Draws::adjust(const noria_draw& row, Room& room) const {
    const int vocab = model_.spec.vocab;
    float* const values = room.values.data();
    for (int i = 0; i < row.banned_count; ++i) values[row.banned[i]] = kNever;
    for (int first = 0; row.allowed != nullptr && first < vocab; first += 32) {
        const uint32_t word = row.allowed[first / 32];
        for (int i = first; word != ~0u && i < std::min(first + 32, vocab); ++i)
            if ((word >> (i - first) & 1) == 0) values[i] = kNever;
    }
    for (int i = 0; i < row.bias_count; ++i) values[row.bias_ids[i]] += row.biases[i];
    if (row.history_count > 0) penalise(row, room);
}

// Repetition over prompt and output, presence and frequency over output.
void Draws::penalise(const noria_draw& row, Room& room) const {
    float* const values = room.values.data();
    const int32_t *const begin = row.history, *const end = begin + row.history_count;
    int32_t* const counts = room.counts.data();
    if (row.repetition != 1.0f) {
        for (const int32_t* token = begin; token != end; ++token) {
            float& value = values[*token];
            if (counts[*token]++ == 0) value = value > 0.0f ? value / row.repetition : value * row.repetition;
        }
        for (const int32_t* token = begin; token != end; ++token) counts[*token] = 0;
    }
    for (const int32_t* token = begin + row.prompt_count; token != end; ++token) ++counts[*token];
    for (const int32_t* token = begin + row.prompt_count; token != end; ++token) {
        const int count = counts[*token];
        if (count == 0) continue;
        values[*token] = values[*token] - row.presence - row.frequency * static_cast<float>(count);
        counts[*token] = 0;
    }
}

// k is less than vocab.
float Draws::kth_highest(int k, Room& room) const {
    const int vocab = model_.spec.vocab, groups = vocab / kGroup;
    const float* values = room.values.data();
    float *const found = room.found.data(), *end = found;
    float least = kNever;
    if (k <= groups) {
        // k values at least are as high as the k-th highest of their groups.
        for (int group = 0; group < groups; ++group) *end++ = kernels_.highest(values + group * kGroup, kGroup);
        std::nth_element(found, found + k - 1, end, std::greater<float>());
        least = found[k - 1];
        end = found;
    }
    for (int first = 0; first < vocab; first += kGroup) {
        const int size = std::min(kGroup, vocab - first);
        if (kernels_.highest(values + first, size) < least) continue;
        for (int i = first; i < first + size; ++i)
            if (values[i] >= least) *end++ = values[i];
    }
    std::nth_element(found, found + k - 1, end, std::greater<float>());
    return found[k - 1];
}

// The highest shares that come to `mass` of `total`; returns what is left of it. Those of which all together, were they
// as many as there are tokens, would come to no more than the rest are not among them.
double Draws::keep_nucleus(double mass, double total, Room& room) const {
    const int vocab = model_.spec.vocab;
    float* const shares = room.values.data();
    float *const found = room.found.data(), *end = found;
    const float unlikely = static_cast<float>((total - mass) / vocab);
    double likely = 0.0;
    for (int first = 0; first < vocab; first += kGroup) {
        const int size = std::min(kGroup, vocab - first);
        if (kernels_.highest(shares + first, size) < unlikely) continue;
        for (int i = first; i < first + size; ++i)
            if (shares[i] > 0.0f && shares[i] >= unlikely) likely += *end++ = shares[i];
    }
    kernels_.drop_below(shares, vocab, nucleus_end(found, end, std::min(mass, likely)));
    return kernels_.sum_up(shares, vocab, room.sums.data());
}

}  // namespace noria
