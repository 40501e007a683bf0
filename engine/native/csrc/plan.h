// What a step is made of, worked out once before its threads start: which row is whose, which rows share an
// adapter, and the items of attention. Knows no tensors.
#pragma once

#include <vector>

#include "api.h"
#include "kernels.h"
#include "model.h"
#include "owners.h"

namespace noria {

// Query rows first .. first + rows - 1 of one sequence and kv head.
struct Tile {
    int span, kv_head, first, rows;
};

class Plan {
public:
    explicit Plan(const Model& model) : model_(model) {}

    // Copies what it needs: a thread may still look at the plan when the batch is gone.
    void make(const noria_batch& batch);

    // A sequence with the block table of a group of layers.
    const Span& span(int index, int group) const { return spans[group * sequences + index]; }

    int sequences = 0;
    int rows = 0;
    bool single = false;         // one new token each: its item can also prepare it
    std::vector<int> tokens;     // [rows]
    std::vector<int> positions;  // [rows]
    std::vector<int> span_of;    // [rows]
    std::vector<int> wanted;     // rows whose logits are wanted, in the caller's order: first those that are
    int drawn = 0;               // given out, so many; then those that are scored,
    std::vector<int> targets;    // each for one token
    // Sequences, those of one adapter together, with the blocks of the first group; then the same of the others.
    std::vector<Span> spans;
    std::vector<Tile> tiles;
    Owners owners;  // of all rows
    // Whether rows that are not wanted end at the last layer, once their keys and values are stored.
    bool trims = false;
    std::vector<Tile> last_tiles;  // of the rows that do not
    Owners last_owners;

private:
    void lay_rows(const noria_batch& batch);
    void lay_tables(const noria_batch& batch);
    void cut_tiles();
    void cut_rows(std::vector<Tile>& into, int span, int first, int end) const;
    void find_owners(const noria_batch& batch);

    const Model& model_;
    std::vector<int32_t> blocks_;
    std::vector<int> order_;
};

}  // namespace noria
