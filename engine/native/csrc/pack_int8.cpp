#include "pack_int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "pack.h"

namespace noria {

namespace {

constexpr int kColumns = 16;  // of one item: neighbours in the panel. Their numbers lie side by side, [k][16]

void read_columns(const Int8Packing& p, int base, int columns, float* x) {
    const int element = p.float32 ? 4 : 2;
    std::vector<float> row(p.k);
    for (int j = 0; j < columns; ++j) {
        widen(p.float32, static_cast<const char*>(p.source) + static_cast<long>(base + j) * p.k * element, p.k,
              row.data());
        for (int i = 0; i < p.k; ++i) x[i * kColumns + j] = row[i];
    }
}

// As turn() of quantise.h, to the bit.
void turn_columns(float* x, int k) {
    for (float* block = x; block < x + k * kColumns; block += kTurn * kColumns)
        for (int distance = kColumns; distance < kTurn * kColumns; distance *= 2)
            for (int pair = 0; pair < kTurn * kColumns; pair += 2 * distance)
                for (int i = pair; i < pair + distance; ++i) {
                    const float one = block[i], other = block[i + distance];
                    block[i] = one + other;
                    block[i + distance] = one - other;
                }
}

// The low byte of a number near 1.5 * 2^23: the whole number nearest to x, ties to even.
uint32_t byte_of(float x) {
    const float shifted = x + 12582912.0f;
    uint32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    return bits & 0xff;
}

// What each column is multiplied with before it is rounded.
void steps_of(const float* x, int k, float* largest, float* inverse) {
    std::fill(largest, largest + kColumns, 0.0f);
    for (int i = 0; i < k; ++i)
        for (int j = 0; j < kColumns; ++j) largest[j] = std::max(largest[j], std::fabs(x[i * kColumns + j]));
    for (int j = 0; j < kColumns; ++j) inverse[j] = largest[j] < kSmallest ? 0.0f : 127.0f / largest[j];
}

void place_columns(const Matrix& to, const int* places, int columns, const float* x) {
    float largest[kColumns], inverse[kColumns];
    steps_of(x, to.k, largest, inverse);
    int32_t sums[kColumns] = {};
    for (int i = 0; i < to.k; i += 4) {
        uint32_t words[kColumns] = {};
        for (int term = 0; term < 4; ++term)
            for (int j = 0; j < kColumns; ++j) {
                const uint32_t byte = byte_of(x[(i + term) * kColumns + j] * inverse[j]);
                words[j] |= byte << 8 * term;
                sums[j] += static_cast<int32_t>(byte << 24) >> 24;
            }
        for (int j = 0; j < columns; ++j)
            std::memcpy(to.panel(places[j] / kPanel) + static_cast<long>(i) * kPanel + places[j] % kPanel * 4,
                        &words[j], 4);
    }
    for (int j = 0; j < columns; ++j) {
        PanelEnd& end = to.panel_end(places[j] / kPanel);
        end.scales[places[j] % kPanel] = inverse[j] == 0.0f ? 0.0f : largest[j] / 127.0f / kTurnGain;
        end.shifts[places[j] % kPanel] = 128 * sums[j];
    }
}

void pack_columns(const Int8Packing& p, int run) {
    const int base = run * kColumns, columns = std::min(kColumns, p.n - base);
    std::vector<float> x(static_cast<size_t>(p.to->k) * kColumns);
    read_columns(p, base, columns, x.data());
    turn_columns(x.data(), p.to->k);
    int places[kColumns];
    for (int j = 0; j < columns; ++j) places[j] = p.first + run * p.pitch + j;
    place_columns(*p.to, places, columns, x.data());
}

int runs_of(const Int8Packing& packing) { return (packing.n + kColumns - 1) / kColumns; }

class Int8PackStep : public Step {
public:
    explicit Int8PackStep(const Int8Packing& packing) : packing_(packing) {}
    void work(Worker& worker) override {
        worker.phase(runs_of(packing_), [this](int run, int) { pack_columns(packing_, run); });
    }

private:
    const Int8Packing& packing_;
};

}  // namespace

void pack_int8(const Int8Packing& packing) {
    for (int run = 0; run < runs_of(packing); ++run) pack_columns(packing, run);
}

void pack_int8(const Int8Packing& packing, Team& team) {
    Int8PackStep step(packing);
    team.run(step, 1);
    team.settle();
}

}  // namespace noria
