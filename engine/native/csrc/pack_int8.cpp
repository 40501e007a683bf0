#include "pack_int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "pack.h"

namespace noria {

namespace {

constexpr int kColumns = 16;  // of one item: neighbours in the panel

// As turn() of quantise.h, to the bit.
void turn_weights(float* x, int k) {
    for (float* block = x; block < x + k; block += kTurn)
        for (int distance = 1; distance < kTurn; distance *= 2)
            for (int pair = 0; pair < kTurn; pair += 2 * distance)
                for (int i = pair; i < pair + distance; ++i) {
                    const float a = block[i], b = block[i + distance];
                    block[i] = a + b;
                    block[i + distance] = a - b;
                }
}

// Turned weights of one column to whole numbers, in place; its scale. What is no number makes that none.
float scale_weights(float* x, int k) {
    float largest = 0.0f, poison = 0.0f;
    for (int i = 0; i < k; ++i) {
        largest = std::max(largest, std::fabs(x[i]));
        poison += x[i] * 0.0f;
    }
    constexpr float kNearest = 12582912.0f;  // 1.5 * 2^23: adding it rounds to whole numbers, ties to even
    const float inverse = largest < kSmallest ? 0.0f : 127.0f / largest;
    for (int i = 0; i < k; ++i) x[i] = poison == 0.0f ? x[i] * inverse + kNearest - kNearest : 0.0f;
    return (largest < kSmallest ? 0.0f : largest / 127.0f / kTurnGain) + poison;
}

void place_weights(const Matrix& to, int column, const float* x, float scale) {
    char* panel = to.panel(column / kPanel);
    int32_t sum = 0;
    for (int i = 0; i < to.k; i += 4) {
        int8_t four[4];
        for (int j = 0; j < 4; ++j) {
            four[j] = static_cast<int8_t>(x[i + j]);
            sum += four[j];
        }
        std::memcpy(panel + static_cast<long>(i) * kPanel + column % kPanel * 4, four, 4);
    }
    to.panel_end(column / kPanel).scales[column % kPanel] = scale;
    to.panel_end(column / kPanel).shifts[column % kPanel] = 128 * sum;
}

void pack_columns(const Int8Packing& p, int run) {
    std::vector<float> x(p.to->k);
    const int element = p.float32 ? 4 : 2;
    for (int j = run * kColumns; j < std::min(p.n, (run + 1) * kColumns); ++j) {
        widen(p.float32, static_cast<const char*>(p.source) + static_cast<long>(j) * p.k * element, p.k, x.data());
        std::fill(x.begin() + p.k, x.end(), 0.0f);
        turn_weights(x.data(), p.to->k);
        const float scale = scale_weights(x.data(), p.to->k);
        place_weights(*p.to, p.first + run * p.pitch + j % kColumns, x.data(), scale);
    }
}

class Int8PackStep : public Step {
public:
    explicit Int8PackStep(const Int8Packing& packing) : packing_(packing) {}
    void work(Worker& worker) override {
        const int runs = (packing_.n + kColumns - 1) / kColumns;
        worker.phase(runs, [this](int run, int) { pack_columns(packing_, run); });
    }

private:
    const Int8Packing& packing_;
};

}  // namespace

void pack_int8(const Int8Packing& packing, Team& team) {
    Int8PackStep step(packing);
    team.run(step, 1);
    team.settle();
}

}  // namespace noria
