// LoRA adapters by slot: the packed A and B of each module they change.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

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

// Owns the memory of its pairs.
struct Adapter {
    std::vector<Pair> pairs;  // [layers * kModules]
    std::vector<std::unique_ptr<Arena>> memory;
    size_t room = 0;    // left in the last of them
    int64_t bytes = 0;  // of the matrices
    int widest = 0;  // columns of the widest padded A

    const Pair& at(int layer, int module) const { return pairs[layer * kModules + module]; }
};

class Adapters {
public:
    Adapters(int layers, bool float32) : layers_(layers), float32_(float32) {}

    // Adds one module to the adapter in `slot`; the bytes that took. Throws std::bad_alloc.
    int64_t load(int slot, int layer, int module, int rank, int in, int out, const void* a, const void* b);
    int64_t unload(int slot);
    // None for slot 0 and for empty slots.
    const Adapter* find(int slot) const;

private:
    Narrow pack(Adapter& adapter, const void* source, int n, int k);

    int layers_;
    bool float32_;
    std::map<int, Adapter> loaded_;
};

}  // namespace noria
