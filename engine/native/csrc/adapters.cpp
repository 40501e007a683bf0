#include "adapters.h"

#include "pack.h"

namespace noria {

Narrow Adapter::pack(const void* source, int n, int k) {
    Narrow matrix;
    matrix.n = n;
    matrix.k = (k + 1) / 2 * 2;
    matrix.panels = (n + 15) / 16;
    matrix.panel_elements = 16L * matrix.k;
    matrix.weights = memory.take(matrix.panels * matrix.panel_elements * (float32_ ? 4 : 2));
    noria::pack({float32_, source, n, k, matrix.weights, 16, matrix.k, 0, 16});
    return matrix;
}

}  // namespace noria
