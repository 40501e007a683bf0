#include "owners.h"

#include <algorithm>

namespace noria {

namespace {

constexpr int kStretchRows = 24;   // so that the threads share a long prompt's rows
constexpr int kItemsOfThread = 4;  // at least, as far as kMostCuts allow
constexpr int kMostCuts = 4;

}  // namespace

void Owners::clear() {
    changes_.clear(), parts_.clear(), stretches_.clear();
    parted_ = false;
    most_ranks_ = 0;
}

void Owners::add(const Adapter* adapter) {
    const int row = static_cast<int>(changes_.size());
    const Change* changes = adapter == nullptr ? nullptr : adapter->changes();
    changes_.push_back(changes);
    parts_.push_back(adapter == nullptr || adapter->parts.none() ? nullptr : &adapter->parts);
    if (adapter == nullptr) return;
    parted_ = parted_ || parts_.back() != nullptr;
    most_ranks_ = std::max(most_ranks_, adapter->most_ranks());
    const bool joins = row > 0 && changes_[row - 1] == changes && stretches_.back().rows < kStretchRows;
    if (!joins) stretches_.push_back({changes, row, 0});
    ++stretches_.back().rows;
}

void Owners::cut(int threads) {
    const int few = std::max<int>(stretches_.size(), 1);
    cuts_ = std::min(kMostCuts, (kItemsOfThread * threads + few - 1) / few);
}

bool Owners::touch(int change) const {
    return std::any_of(stretches_.begin(), stretches_.end(),
                       [&](const Stretch& stretch) { return !stretch.changes[change].none(); });
}

Shrink Owners::shrink(int item, int change) const {
    const Stretch& stretch = stretches_[item / cuts_];
    const Change& own = stretch.changes[change];
    const int pairs = own.ranks / 2, cut = item % cuts_;
    return {&stretch, &own, 2 * (pairs * cut / cuts_), 2 * (pairs * (cut + 1) / cuts_)};
}

}  // namespace noria
