#include "pack.h"

#include <cstring>

namespace noria {

namespace {

// Sixteen rows at a time: their columns are neighbours, so the writes are nearly in order.
template <class T>
void pack_panels(const T* source, int n, int k, T* to, int width, int padded_k, int first, int pitch) {
    constexpr int lane = 4 / sizeof(T);  // terms side by side: a pair of bf16, a single float
    const long panel_elements = static_cast<long>(width) * padded_k, unit = static_cast<long>(width) * lane;
    for (int base = 0; base < n; base += 16) {
        const int rows = n - base < 16 ? n - base : 16;
        const T* from[16];
        T* into[16];
        for (int row = 0; row < rows; ++row) {
            const int column = first + base / 16 * pitch + row;
            from[row] = source + static_cast<long>(base + row) * k;
            into[row] = to + column / width * panel_elements + column % width * lane;
        }
        int i = 0;
        for (; i + lane <= k; i += lane)
            for (int row = 0; row < rows; ++row)
                std::memcpy(into[row] + i / lane * unit, from[row] + i, sizeof(T) * lane);
        for (; i < k; ++i)  // an odd term at the end
            for (int row = 0; row < rows; ++row) into[row][i / lane * unit] = from[row][i];
    }
}

}  // namespace

void pack(bool float32, const void* source, int n, int k, void* to, int width, int padded_k, int first,
          int pitch) {
    if (float32)
        pack_panels(static_cast<const float*>(source), n, k, static_cast<float*>(to), width, padded_k, first, pitch);
    else
        pack_panels(static_cast<const bf16*>(source), n, k, static_cast<bf16*>(to), width, padded_k, first, pitch);
}

void widen(bool float32, const void* source, int count, float* to) {
    if (float32) {
        std::memcpy(to, source, count * sizeof(float));
        return;
    }
    for (int i = 0; i < count; ++i) {
        const uint32_t bits = static_cast<uint32_t>(static_cast<const bf16*>(source)[i].bits) << 16;
        std::memcpy(to + i, &bits, sizeof bits);
    }
}

}  // namespace noria
