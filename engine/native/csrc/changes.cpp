#include "changes.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "adapters.h"
#include "model.h"

namespace noria {

namespace {

constexpr int kMembers = 3;  // parts of a group, at most

// The parts of a group have numbers that follow each other.
struct Parts {
    int first, count;
};
constexpr Parts kParts[] = {{NORIA_Q, 3}, {NORIA_O, 1}, {NORIA_GATE, 2}, {NORIA_DOWN, 1}, {NORIA_HEAD, 1}};

// Terms first .. end - 1 of A x.
struct Terms {
    int first = 0, end = 0;

    int count() const { return end - first; }
    void join(const Terms& other) {
        *this = count() == 0 ? other : Terms{std::min(first, other.first), std::max(end, other.end)};
    }
};

Group group_of(int part) {
    int group = 0;
    while (part >= kParts[group].first + kParts[group].count) ++group;
    return static_cast<Group>(group);
}

int column_of(const Columns& at, int row) { return at.first + row / 16 * at.pitch + row % 16; }

// The deltas of one product on their way into an adapter.
class PairPacker {
public:
    PairPacker(Adapter& adapter, const Model& model, Group group, const noria_pairs& pairs);

    Change pack(Change change);

private:
    const char* pack_a(long pitch);
    const Block* lay_blocks();
    void pack_part(int member, const Block* blocks, char* b) const;

    Adapter& adapter_;
    const Model& model_;
    const noria_pairs& pairs_;
    const int element_, in_, panels_;
    int members_;
    Columns columns_[kMembers];
    Terms terms_[kMembers];
    int ranks_ = 0;
};

// Parts with the same A have the same terms. An odd rank is followed by a zero.
PairPacker::PairPacker(Adapter& adapter, const Model& model, Group group, const noria_pairs& pairs)
    : adapter_(adapter),
      model_(model),
      pairs_(pairs),
      element_(model.element()),
      in_(model.part_in(kParts[group].first)),
      panels_(model.panels_of(group)),
      members_(kParts[group].count) {
    for (int i = 0; i < members_; ++i) {
        columns_[i] = model.columns(kParts[group].first + i);
        if (pairs.ranks[i] == 0) continue;
        int twin = 0;
        while (pairs.ranks[twin] == 0 || pairs.a[twin] != pairs.a[i]) ++twin;
        terms_[i] = twin < i ? terms_[twin] : Terms{ranks_, ranks_ + (pairs.ranks[i] + 1) / 2 * 2};
        ranks_ = std::max(ranks_, terms_[i].end);
    }
}

Change PairPacker::pack(Change change) {
    change.ranks = ranks_;
    change.a_bytes = (in_ * element_ + 63) / 64 * 64L;
    change.a = pack_a(change.a_bytes);
    change.blocks = lay_blocks();
    char* b = adapter_.memory.take(change.blocks[2 * panels_].at);
    for (int i = 0; i < members_; ++i)
        if (pairs_.ranks[i] != 0) pack_part(i, change.blocks, b);
    change.b = b;
    return change;
}

const char* PairPacker::pack_a(long pitch) {
    const long row = static_cast<long>(in_) * element_;
    char* a = adapter_.memory.take(ranks_ * pitch);
    for (int i = 0; i < members_; ++i)
        for (int rank = 0; rank < pairs_.ranks[i]; ++rank)
            std::memcpy(a + (terms_[i].first + rank) * pitch, static_cast<const char*>(pairs_.a[i]) + rank * row, row);
    return a;
}

// A block has the terms of all parts that have columns in it: of one, but where two meet within a block.
const Block* PairPacker::lay_blocks() {
    std::vector<Terms> terms(2 * panels_ + 1);
    for (int i = 0; i < members_; ++i)
        for (int row = 0; pairs_.ranks[i] != 0 && row < columns_[i].count; ++row)
            terms[column_of(columns_[i], row) / 16].join(terms_[i]);
    auto* blocks = reinterpret_cast<Block*>(adapter_.memory.take(terms.size() * sizeof(Block)));
    int at = 0;
    for (size_t i = 0; i < terms.size(); ++i) {
        blocks[i] = {at, terms[i].first, terms[i].count()};
        at += 16 * terms[i].count() * element_;
    }
    return blocks;
}

// Each row of B becomes a lane of a block. A word of it is what lies side by side: a pair of bf16 or a float.
void PairPacker::pack_part(int member, const Block* blocks, char* b) const {
    const int rank = pairs_.ranks[member], pack = 4 / element_;
    const char* row = static_cast<const char*>(pairs_.b[member]);
    for (int i = 0; i < columns_[member].count; ++i, row += static_cast<long>(rank) * element_) {
        const int column = column_of(columns_[member], i);
        const Block& block = blocks[column / 16];
        char* lane = b + block.at + 16L * (terms_[member].first - block.first) * element_ + column % 16 * 4;
        for (int term = 0; term < rank; term += pack, lane += 64)
            std::memcpy(lane, row + term * element_, std::min(pack, rank - term) * element_);
    }
}

}  // namespace

void put_pairs(Adapter& adapter, const Model& model, int layer, Group group, const noria_pairs& pairs) {
    adapter.set(layer, group, PairPacker(adapter, model, group, pairs).pack(adapter.change(layer, group)));
}

void put_affine(Adapter& adapter, const Model& model, int layer, int part, const float* gain, const float* shift) {
    const Group group = group_of(part);
    Change change = adapter.change(layer, group);
    if (change.gain == nullptr) {
        const long columns = static_cast<long>(model.panels_of(group)) * kPanel;
        float* both = reinterpret_cast<float*>(adapter.memory.take(2 * columns * sizeof(float)));
        change.gain = both, change.shift = both + columns;
        std::fill(change.gain, change.gain + columns, 1.0f);
    }
    const Columns at = model.columns(part);
    for (int row = 0; row < at.count; ++row) {
        if (gain != nullptr) change.gain[column_of(at, row)] = gain[row];
        if (shift != nullptr) change.shift[column_of(at, row)] = shift[row];
    }
    adapter.set(layer, group, change);
}

}  // namespace noria
