// LoRA adapters: all that one changes, packed, and which of them has which slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "adapter_parts.h"
#include "arena.h"
#include "changes.h"

namespace noria {

// Owns the memory of its changes. Filled by one thread while others compute steps, and not changed afterwards.
class Adapter {
public:
    Adapter(int layers, bool float32) : float32_(float32), changes_(static_cast<size_t>(layers) * kGroups + 1) {}

    // source [n, k] in panels. Throws std::bad_alloc.
    Narrow pack(const void* source, int n, int k);
    // Of layer 0's first product, and so on, the head's last; see Product::changes.
    const Change* changes() const { return changes_.data(); }
    const Change& change(int layer, Group group) const { return changes_[place_of(layer, group)]; }
    void set(int layer, Group group, const Change& change) {
        changes_[place_of(layer, group)] = change;
        most_ranks_ = std::max(most_ranks_, change.ranks);
    }

    // Of one product.
    int most_ranks() const { return most_ranks_; }

    Slabs memory;  // of everything that it is made of
    AdapterParts parts;

private:
    size_t place_of(int layer, Group group) const {
        return group == kHead ? changes_.size() - 1 : layer * kGroups + group;
    }

    bool float32_;
    std::vector<Change> changes_;  // [layers * kGroups + 1]
    int most_ranks_ = 0;
};

// Adapters by slot. Owns none: whoever binds one keeps it until the slot is empty again.
class Slots {
public:
    void bind(int slot, const Adapter* adapter) { bound_[slot] = adapter; }
    void unbind(int slot) { bound_.erase(slot); }
    // None for slot 0 and for empty slots.
    const Adapter* find(int slot) const {
        const auto found = bound_.find(slot);
        return found == bound_.end() ? nullptr : found->second;
    }

private:
    std::map<int, const Adapter*> bound_;
};

}  // namespace noria
