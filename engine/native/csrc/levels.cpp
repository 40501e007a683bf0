#include "levels.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "pack.h"

namespace noria {

namespace {

// From the system's <asm/prctl.h>, which older ones lack.
constexpr int kRequestState = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr int kTileData = 18;          // the state's number: the tiles' contents
constexpr uint64_t kTileStates = uint64_t{3} << 17;

uint64_t enabled_states() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t{high} << 32 | low;
}

bool amx_allowed() {
    uint32_t a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1) == 0) return false;  // the system saves no states
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    const bool bf16_products = d >> 22 & 1, tiles = d >> 24 & 1;
    return bf16_products && tiles && (enabled_states() & kTileStates) == kTileStates &&
           syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
}

// A product with tails in every direction.
struct Drawn {
    static constexpr int kRows = 37, kTerms = 70, kColumns = 56;

    Drawn() : x(kRows * kTerms), weights(kColumns * kTerms), packed(2 * kPanel * kTerms) {
        std::mt19937 draw(1);
        for (std::vector<bf16>* numbers : {&x, &weights})
            for (bf16& number : *numbers) {
                // One of 256 from every power of two between 1/8 and 2, of either sign.
                const uint32_t drawn = draw();
                number.bits = static_cast<uint16_t>((drawn & 0x8000u) | (0x3e00u + (drawn & 0x1ffu)));
            }
        pack({false, weights.data(), kColumns, kTerms, packed.data(), kPanel, kTerms, 0, 16});
        matrix.weights = packed.data();
        matrix.n = kColumns, matrix.in = matrix.k = kTerms, matrix.panels = 2;
        matrix.panel_bytes = static_cast<long>(kPanel) * kTerms * sizeof(bf16);
    }

    std::vector<float> product(const Kernels& kernels) const {
        std::vector<float> y(kRows * 2 * kPanel);
        const Product p = {&matrix, x.data(), kTerms, y.data(), 2 * kPanel, Into::kStore};
        for (int panel = 0; panel < matrix.panels; ++panel) kernels.multiply(p, panel, 0, kRows, nullptr);
        return y;
    }

    std::vector<bf16> x, weights, packed;
    Matrix matrix;
};

}  // namespace

Level best_level() {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni") &&
        __builtin_cpu_supports("fma")) {
        static const bool amx = amx_allowed();
        return amx ? kAmx : kAvx512;
    }
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? kAvx2 : kNone;
}

const Kernels& kernels_of(Level level, bool float32) {
    switch (level) {
        case kEmulatedAmx: return emulated_amx_kernels(float32);
        case kAmx: return amx_kernels(float32);
        case kAvx512: return avx512_kernels(float32);
        default: return avx2_kernels(float32);
    }
}

float disagreement(Level level) {
    const Drawn drawn;
    const std::vector<float> found = drawn.product(kernels_of(level, false));
    const std::vector<float> wanted = drawn.product(avx512_kernels(false));
    float largest = 0.0f, furthest = 0.0f;
    for (size_t i = 0; i < wanted.size(); ++i) {
        const float distance = std::abs(found[i] - wanted[i]);
        if (!(distance <= furthest)) furthest = distance;
        if (std::isnan(distance)) return distance;
        largest = std::max(largest, std::abs(wanted[i]));
    }
    return furthest / largest;
}

}  // namespace noria
