// What a step is made of, worked out once before its threads start: which row is whose, which rows share an
// adapter, and the items of attention. Knows no tensors.
#pragma once

#include <vector>

#include "adapters.h"
#include "api.h"
#include "kernels.h"
#include "model.h"

namespace noria {

// Parts whose input is the same rows and whose output lies side by side.
enum Group { kQkv, kO, kGateUp, kDown, kGroups };

// One module of one adapter over the rows that have it.
struct Delta {
    const Pair* pair;
    int first, rows;
    int place;   // 0 .. 2 within the group: where A x is kept
    int column;  // of the group's output
    int pitch;   // from panel to panel of B
};

struct DeltaPart {
    const Delta* delta;
    int panel, panels;
};

struct GroupDeltas {
    std::vector<Delta> shrinks;
    std::vector<DeltaPart> expands;
};

// Query rows first .. first + rows - 1 of one sequence and kv head.
struct Tile {
    int span, kv_head, first, rows;
};

class Plan {
public:
    explicit Plan(const Model& model) : model_(model), deltas_(model.layers.size() * kGroups) {}

    // Copies what it needs: a thread may still look at the plan when the batch is gone.
    void make(const noria_batch& batch);

    // A sequence with the block table of a group of layers.
    const Span& span(int index, int group) const { return spans[group * sequences + index]; }

    const GroupDeltas* deltas(int layer, Group group) const {
        const GroupDeltas& found = deltas_[layer * kGroups + group];
        return adapted && !found.shrinks.empty() ? &found : nullptr;
    }

    // What a row's adapter has beside its pairs; none where that is nothing.
    const AdapterParts* parts(int row) const { return parts_.empty() ? nullptr : parts_[row]; }
    // The norm that a row passes in place of the model's own.
    const Norm& norm(int row, int layer, int part, const Norm& own) const {
        return parts(row) == nullptr ? own : parts(row)->norm(layer, part, own);
    }

    int sequences = 0;
    int rows = 0;
    int rank = 0;                // of the widest padded A
    bool adapted = false;        // some row has an adapter
    bool single = false;         // one new token each: its item can also prepare it
    std::vector<int> tokens;     // [rows]
    std::vector<int> positions;  // [rows]
    std::vector<int> span_of;    // [rows]
    std::vector<int> sampled;    // rows whose logits are wanted, in the caller's order
    // Sequences, those of one adapter together, with the blocks of the first group; then the same of the others.
    std::vector<Span> spans;
    std::vector<Tile> tiles;
    // Whether rows that are not sampled end at the last layer, once their keys and values are stored.
    bool trims = false;
    std::vector<Tile> last_tiles;  // of the rows that do not

private:
    struct Run {
        const Adapter* adapter;
        int first, rows;
    };

    void lay_rows(const noria_batch& batch);
    void lay_tables(const noria_batch& batch);
    void cut_tiles();
    void cut_rows(std::vector<Tile>& into, int span, int first, int end) const;
    void gather_deltas(const std::vector<Run>& runs);
    void gather_parts(const std::vector<Run>& runs);

    const Model& model_;
    std::vector<int32_t> blocks_;
    std::vector<int> order_;
    std::vector<GroupDeltas> deltas_;
    std::vector<const AdapterParts*> parts_;  // [rows], empty where none has any
};

}  // namespace noria
