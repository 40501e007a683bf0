// Whose adapter each of some rows has, and the items that make A x for them.
#pragma once

#include <vector>

#include "adapters.h"

namespace noria {

// Neighbouring rows of one adapter, few enough for one item.
struct Stretch {
    const Change* changes;  // of its adapter
    int first, rows;
};

// Terms first .. end - 1 of A x for the rows of a stretch.
struct Shrink {
    const Stretch* stretch;
    const Change* change;
    int first, end;
};

// `change` below as in Product.
class Owners {
public:
    void clear();
    // The next row's adapter, or none.
    void add(const Adapter* adapter);
    // When all are there: for that many threads.
    void cut(int threads);

    // Of each row, or none.
    const Change* const* changes() const { return changes_.data(); }
    const std::vector<Stretch>& stretches() const { return stretches_; }
    // Whether an adapter changes one product of a layer.
    bool touch(int change) const;
    // Items that make A x for all rows.
    int shrinks() const { return cuts_ * static_cast<int>(stretches_.size()); }
    Shrink shrink(int item, int change) const;
    // Whether no stretch of the same adapter stands just before it.
    bool begins(const Stretch& stretch) const {
        return &stretch == stretches_.data() || (&stretch)[-1].changes != stretch.changes;
    }

    // What a row's adapter has beside its changes; none where that is nothing.
    const AdapterParts* parts(int row) const { return parted_ ? parts_[row] : nullptr; }
    // The norm that a row passes in place of the model's own.
    const Norm& norm(int row, int layer, int part, const Norm& own) const {
        return parts(row) == nullptr ? own : parts(row)->norm(layer, part, own);
    }

    // The most ranks of an adapter in one product.
    int most_ranks() const { return most_ranks_; }

private:
    std::vector<const Change*> changes_;      // [rows]
    std::vector<const AdapterParts*> parts_;  // [rows]
    std::vector<Stretch> stretches_;
    bool parted_ = false;  // some row has parts
    int cuts_ = 1;         // of each stretch's terms
    int most_ranks_ = 0;
};

}  // namespace noria
