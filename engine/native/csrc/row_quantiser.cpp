#include "row_quantiser.h"

namespace noria {

void RowQuantiser::shared(Worker& worker, Product& product, int rows) const {
    worker.phase(rows, [&](int row, int) { quantise(worker, product, row, space_.quantised); });
    product.quantised = space_.quantised;
    product.quantised_stride = space_.quantised_stride;
}

void RowQuantiser::own(const Worker& worker, Product& product, int rows) const {
    uint8_t* own = space_.own_quantised + worker.thread() * kPrivateRows * space_.quantised_stride;
    for (int row = 0; row < rows; ++row) quantise(worker, product, row, own);
    product.quantised = own;
    product.quantised_stride = space_.quantised_stride;
}

void RowQuantiser::quantise(const Worker& worker, const Product& product, int row, uint8_t* rows) const {
    const char* x = static_cast<const char*>(product.x) + row * product.x_stride * model_.element();
    float* turned = space_.turned + worker.thread() * space_.turned_stride;
    model_.kernels.quantise(x, product.matrix->in, turned, rows + row * space_.quantised_stride);
}

}  // namespace noria
