// LoRA adapters: the packed A and B of each module that one changes, and which of them has which slot.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "adapter_parts.h"
#include "arena.h"
#include "kernels.h"

namespace noria {

constexpr int kModules = 7;  // NORIA_Q .. NORIA_DOWN

// y += B (A x), the scale in B. `none` where the adapter leaves the module alone.
struct Pair {
    Narrow a;  // n = rank, k = in
    Narrow b;  // n = out, k = rank
    bool none() const { return a.weights == nullptr; }
};

// Owns the memory of its pairs. Filled by one thread while others compute steps, and not changed afterwards.
class Adapter {
public:
    Adapter(int layers, bool float32) : float32_(float32), pairs_(static_cast<size_t>(layers) * kModules) {}

    // Adds one module. Throws std::bad_alloc.
    void add(int layer, int module, int rank, int in, int out, const void* a, const void* b);
    // source [n, k] in panels. Throws std::bad_alloc.
    Narrow pack(const void* source, int n, int k);

    const Pair& at(int layer, int module) const { return pairs_[layer * kModules + module]; }
    // Columns of the widest padded A.
    int widest() const { return widest_; }

    Slabs memory;  // of everything that it is made of
    AdapterParts parts;

private:
    bool float32_;
    std::vector<Pair> pairs_;  // [layers * kModules]
    int widest_ = 0;
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
