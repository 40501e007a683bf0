#include "plan.h"

#include <algorithm>
#include <numeric>

namespace noria {

namespace {

constexpr int kExpandPanels = 8;  // of one item

struct Member {
    int part;
    Group group;
    int place;
};

constexpr Member kMembers[kModules] = {
    {NORIA_Q, kQkv, 0},       {NORIA_K, kQkv, 1},     {NORIA_V, kQkv, 2},    {NORIA_O, kO, 0},
    {NORIA_GATE, kGateUp, 0}, {NORIA_UP, kGateUp, 1}, {NORIA_DOWN, kDown, 0},
};

}  // namespace

void Plan::make(const noria_batch& batch) {
    order_.resize(batch.sequences);
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return batch.slots[a] < batch.slots[b]; });
    lay_rows(batch);
    lay_tables(batch);
    cut_tiles();
    std::vector<Run> runs;
    for (size_t i = 0; i < order_.size(); ++i) {
        const Adapter* adapter = model_.slots.find(batch.slots[order_[i]]);
        if (adapter == nullptr) continue;
        if (runs.empty() || runs.back().adapter != adapter) runs.push_back({adapter, spans[i].row, 0});
        runs.back().rows += spans[i].count;
    }
    adapted = !runs.empty();
    rank = 0;
    if (adapted) gather_deltas(runs);
    gather_parts(runs);
    // With adapters the rows of one adapter would have to be found anew: not worth it for one layer.
    trims = !adapted && !single && static_cast<int>(sampled.size()) < rows;
}

void Plan::lay_rows(const noria_batch& batch) {
    const int count = sequences = batch.sequences;
    std::vector<int> first_token(count + 1, 0), row_of(count);
    for (int i = 0; i < count; ++i) first_token[i + 1] = first_token[i] + batch.counts[i];
    tokens.clear(), positions.clear(), span_of.clear(), spans.clear(), sampled.clear();
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
        if (batch.samples[i] != 0) sampled.push_back(row_of[i] + batch.counts[i] - 1);
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
    for (const int row : sampled) {
        const int all = spans[span_of[row]].count * group;
        cut_rows(last_tiles, span_of[row], all - group, all);
    }
}

void Plan::cut_rows(std::vector<Tile>& into, int span, int first, int end) const {
    for (int head = 0; head < model_.spec.kv_heads; ++head)
        for (int row = first; row < end; row += kTile) into.push_back({span, head, row, std::min(kTile, end - row)});
}

void Plan::gather_deltas(const std::vector<Run>& runs) {
    const int layers = static_cast<int>(model_.layers.size());
    for (int layer = 0; layer < layers; ++layer) {
        GroupDeltas* groups = &deltas_[layer * kGroups];
        for (int group = 0; group < kGroups; ++group) groups[group].shrinks.clear(), groups[group].expands.clear();
        for (const Run& run : runs) {
            for (const Member& member : kMembers) {
                const Pair& pair = run.adapter->at(layer, member.part);
                if (pair.none()) continue;
                const Columns at = model_.columns(member.part);
                groups[member.group].shrinks.push_back(
                    {&pair, run.first, run.rows, member.place, at.first, at.pitch});
            }
        }
        for (int group = 0; group < kGroups; ++group)
            for (const Delta& delta : groups[group].shrinks)
                for (int panel = 0; panel < delta.pair->b.panels; panel += kExpandPanels)
                    groups[group].expands.push_back(
                        {&delta, panel, std::min(kExpandPanels, delta.pair->b.panels - panel)});
    }
    for (const Run& run : runs) rank = std::max(rank, run.adapter->widest());
}

void Plan::gather_parts(const std::vector<Run>& runs) {
    parts_.clear();
    for (const Run& run : runs) {
        if (run.adapter->parts.none()) continue;
        parts_.resize(rows, nullptr);
        std::fill_n(parts_.begin() + run.first, run.rows, &run.adapter->parts);
    }
}

}  // namespace noria
