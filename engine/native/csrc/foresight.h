// What a thread will read of the adapters behind the item under way, asked for while that computes: with many
// adapters in a step each one's matrices come from memory for a row or two, and waiting for them would cost more
// than the sums.
#pragma once

#include "owners.h"
#include "team.h"

namespace noria {

class Foresight {
public:
    // For a product of `items`; A is asked for on behalf of the next one, and of this thread's share of its shrinks.
    // owners: none where adapters do not matter. changes: of an adapter.
    Foresight(const Owners* owners, int change, int changes, const Worker& worker, int items);

    // Sets the pieces for an item: B for the panel of a product that this thread computes next, and a portion of A.
    void look(int change, int panel);

    Ahead pieces;

private:
    long lines_of(int item) const;
    void add_portion();

    const Owners* owners_;
    const int next_, changes_;
    int item_ = 0, end_ = 0;  // of the shrinks
    long done_ = 0;  // lines of the shrink under way
    long portion_ = 0;
};

}  // namespace noria
