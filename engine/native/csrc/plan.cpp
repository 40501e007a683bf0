#include "plan.h"

#include <algorithm>
#include <numeric>

namespace noria {

void Plan::make(const noria_batch& batch) {
    order_.resize(batch.sequences);
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return batch.slots[a] < batch.slots[b]; });
    lay_rows(batch);
    lay_tables(batch);
    cut_tiles();
    find_owners(batch);
    trims = !single && static_cast<int>(wanted.size()) < rows;
}

void Plan::lay_rows(const noria_batch& batch) {
    const int count = sequences = batch.sequences;
    std::vector<int> first_token(count + 1, 0), row_of(count);
    for (int i = 0; i < count; ++i) first_token[i + 1] = first_token[i] + batch.counts[i];
    tokens.clear(), positions.clear(), span_of.clear(), spans.clear(), wanted.clear();
    for (const int i : order_) {
        const int row = static_cast<int>(tokens.size());
        row_of[i] = row;
        for (int j = 0; j < batch.counts[i]; ++j) {
            tokens.push_back(batch.token_ids[first_token[i] + j]);
            positions.push_back(batch.starts[i] + j);
            span_of.push_back(static_cast<int>(spans.size()));
        }
        spans.push_back({nullptr, batch.starts[i], batch.counts[i], row});
    }
    rows = static_cast<int>(tokens.size());
    for (int i = 0; i < count; ++i)
        if (batch.samples[i] != 0) wanted.push_back(row_of[i] + batch.counts[i] - 1);
    drawn = static_cast<int>(wanted.size());
    for (int i = 0; i < count; ++i)
        for (int j = 0; j < batch.score_counts[i]; ++j) wanted.push_back(row_of[i] + batch.score_firsts[i] + j);
    targets.assign(batch.targets, batch.targets + wanted.size() - drawn);
}

// Of each group the tables of all sequences, one after another.
void Plan::lay_tables(const noria_batch& batch) {
    const int groups = model_.spec.groups;
    std::vector<int> first(sequences + 1, 0);
    for (int i = 0; i < sequences; ++i) first[i + 1] = first[i] + batch.block_counts[i];
    const int all = first[sequences], rows_of_blocks = all / groups;
    blocks_.resize(all);
    for (int i = 0; i < all; ++i) blocks_[i % groups * rows_of_blocks + i / groups] = batch.blocks[i];
    for (int group = 1; group < groups; ++group)
        for (int i = 0; i < sequences; ++i) spans.push_back(spans[i]);
    for (int group = 0; group < groups; ++group)
        for (int i = 0; i < sequences; ++i)
            spans[group * sequences + i].table = blocks_.data() + group * rows_of_blocks + first[order_[i]] / groups;
}

void Plan::cut_tiles() {
    const int group = model_.spec.heads / model_.spec.kv_heads;
    single = rows == sequences && group <= kTile;
    tiles.clear(), last_tiles.clear();
    for (int span = 0; span < sequences; ++span)
        cut_rows(tiles, span, 0, spans[span].count * group);
    for (const int row : wanted) {
        const int first = (row - spans[span_of[row]].row) * group;
        cut_rows(last_tiles, span_of[row], first, first + group);
    }
}

void Plan::cut_rows(std::vector<Tile>& into, int span, int first, int end) const {
    for (int head = 0; head < model_.spec.kv_heads; ++head)
        for (int row = first; row < end; row += kTile) into.push_back({span, head, row, std::min(kTile, end - row)});
}

void Plan::find_owners(const noria_batch& batch) {
    owners.clear(), last_owners.clear();
    for (int i = 0; i < sequences; ++i) {
        const Adapter* adapter = model_.slots.find(batch.slots[order_[i]]);
        for (int row = 0; row < spans[i].count; ++row) owners.add(adapter);
    }
    for (const int row : wanted) last_owners.add(model_.slots.find(batch.slots[order_[span_of[row]]]));
    owners.cut(model_.team.size()), last_owners.cut(model_.team.size());
}

}  // namespace noria
