#include "pack.h"

#include <emmintrin.h>

#include <cstring>

namespace noria {

namespace {

constexpr int kRun = 16;  // rows whose columns are neighbours

// Four words of each of four rows become four of each of four columns, which lie `unit` words apart.
void transpose4(const char* const* from, long at, uint32_t* into, long unit) {
    __m128i row[4];
    for (int i = 0; i < 4; ++i) row[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from[i] + at));
    const __m128i low01 = _mm_unpacklo_epi32(row[0], row[1]), low23 = _mm_unpacklo_epi32(row[2], row[3]);
    const __m128i high01 = _mm_unpackhi_epi32(row[0], row[1]), high23 = _mm_unpackhi_epi32(row[2], row[3]);
    const __m128i columns[4] = {_mm_unpacklo_epi64(low01, low23), _mm_unpackhi_epi64(low01, low23),
                                _mm_unpacklo_epi64(high01, high23), _mm_unpackhi_epi64(high01, high23)};
    for (int i = 0; i < 4; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(into + i * unit), columns[i]);
}

// One run of at most sixteen rows. A word, four bytes, is what lies side by side: a pair of bf16 or a float.
void pack_run(const Packing& p, int run) {
    const int element = p.float32 ? 4 : 2, lane = 4 / element;
    const int base = run * kRun, rows = p.n - base < kRun ? p.n - base : kRun;
    const long words = p.k / lane, odd = p.k % lane, panel_words = static_cast<long>(p.width) * p.padded_k / lane;
    const char* from[kRun];
    uint32_t* into[kRun];
    for (int row = 0; row < rows; ++row) {
        const int column = p.first + run * p.pitch + row;
        from[row] = static_cast<const char*>(p.source) + static_cast<long>(base + row) * p.k * element;
        into[row] = static_cast<uint32_t*>(p.to) + column / p.width * panel_words + column % p.width;
    }
    const bool together = rows == kRun && into[kRun - 1] - into[0] == kRun - 1;
    long i = 0;
    for (; together && i + 4 <= words; i += 4)
        for (int row = 0; row < kRun; row += 4) transpose4(from + row, 4 * i, into[row] + i * p.width, p.width);
    for (; i < words; ++i)
        for (int row = 0; row < rows; ++row) std::memcpy(into[row] + i * p.width, from[row] + 4 * i, 4);
    for (int row = 0; odd && row < rows; ++row) std::memcpy(into[row] + i * p.width, from[row] + 4 * i, element);
}

int runs_of(const Packing& packing) { return (packing.n + kRun - 1) / kRun; }

class PackStep : public Step {
public:
    explicit PackStep(const Packing& packing) : packing_(packing) {}
    void work(Worker& worker) override {
        worker.phase(runs_of(packing_), [this](int run, int) { pack_run(packing_, run); });
    }

private:
    const Packing& packing_;
};

}  // namespace

void pack(const Packing& packing) {
    for (int run = 0; run < runs_of(packing); ++run) pack_run(packing, run);
}

void pack(const Packing& packing, Team& team) {
    PackStep step(packing);
    team.run(step, 1);
    team.settle();
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
