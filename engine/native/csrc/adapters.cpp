#include "adapters.h"

#include <algorithm>

#include "pack.h"

namespace noria {

namespace {
constexpr size_t kSlab = size_t{4} << 20;  // two huge pages
}

Narrow Adapters::pack(Adapter& adapter, const void* source, int n, int k) {
    Narrow matrix;
    matrix.n = n;
    matrix.k = (k + 1) / 2 * 2;
    matrix.panels = (n + 15) / 16;
    matrix.panel_elements = 16L * matrix.k;
    const size_t bytes = matrix.panels * matrix.panel_elements * (float32_ ? 4 : 2);
    const size_t place = Arena::rounded(bytes);
    if (place > adapter.room) {
        const size_t size = std::max(place, kSlab);
        adapter.memory.push_back(std::make_unique<Arena>(size));
        adapter.room = size;
    }
    matrix.weights = adapter.memory.back()->take(bytes);
    adapter.room -= place;
    adapter.bytes += bytes;
    noria::pack({float32_, source, n, k, matrix.weights, 16, matrix.k, 0, 16});
    return matrix;
}

int64_t Adapters::load(int slot, int layer, int module, int rank, int in, int out, const void* a, const void* b) {
    Adapter& adapter = loaded_[slot];
    adapter.pairs.resize(static_cast<size_t>(layers_) * kModules);
    const int64_t before = adapter.bytes;
    Pair& pair = adapter.pairs[layer * kModules + module];
    const Narrow first = pack(adapter, a, rank, in);
    pair.b = pack(adapter, b, out, rank);
    pair.a = first;
    if (16 * pair.a.panels > adapter.widest) adapter.widest = 16 * pair.a.panels;
    return adapter.bytes - before;
}

int64_t Adapters::unload(int slot) {
    const auto found = loaded_.find(slot);
    if (found == loaded_.end()) return 0;
    const int64_t bytes = found->second.bytes;
    loaded_.erase(found);
    return bytes;
}

const Adapter* Adapters::find(int slot) const {
    const auto found = loaded_.find(slot);
    return found == loaded_.end() ? nullptr : &found->second;
}

}  // namespace noria
