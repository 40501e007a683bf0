#include "adapters.h"

#include <algorithm>

#include "pack.h"

namespace noria {

namespace {

constexpr size_t kSlab = size_t{4} << 20;  // two huge pages

int64_t bytes_of(const Narrow& matrix, bool float32) { return matrix.panels * matrix.panel_elements * (float32 ? 4 : 2); }

}  // namespace

Narrow Adapter::pack(const void* source, int n, int k) {
    Narrow matrix;
    matrix.n = n;
    matrix.k = (k + 1) / 2 * 2;
    matrix.panels = (n + 15) / 16;
    matrix.panel_elements = 16L * matrix.k;
    const size_t bytes = bytes_of(matrix, float32_), place = Arena::rounded(bytes);
    if (place > room_) {
        const size_t size = std::max(place, kSlab);
        memory_.push_back(std::make_unique<Arena>(size));
        room_ = size;
    }
    matrix.weights = memory_.back()->take(bytes);
    room_ -= place;
    noria::pack({float32_, source, n, k, matrix.weights, 16, matrix.k, 0, 16});
    return matrix;
}

int64_t Adapter::add(int layer, int module, int rank, int in, int out, const void* a, const void* b) {
    Pair& pair = pairs_[layer * kModules + module];
    const Narrow first = pack(a, rank, in);
    pair.b = pack(b, out, rank);
    pair.a = first;
    widest_ = std::max(widest_, 16 * pair.a.panels);
    return bytes_of(pair.a, float32_) + bytes_of(pair.b, float32_);
}

}  // namespace noria
