// A mixture of experts in place of an MLP: each row through the experts its router likes best.
#pragma once

#include <vector>

#include "model.h"
#include "owners.h"
#include "row_quantiser.h"
#include "workspace.h"

namespace noria {

class Mixture {
public:
    // Both outlive it.
    Mixture(const Model& model, Workspace& space);

    // Room for that many rows; before the step's threads start. Throws std::bad_alloc.
    void reserve(int rows);
    // Adds to `hidden` what the experts of a layer make of its rows, which have these owners. Every thread calls it, in kPhases phases
    // at most. What the next product reads is `after`.
    void work(Worker& worker, int layer, float* hidden, int rows, const Owners& owners, const Matrix* after);

    static constexpr int kPhases = 10;

private:
    // Rows first .. first + count - 1 of those parted by expert.
    struct Part {
        int expert, first, count;
    };

    void rate(Worker& worker, int index, const float* hidden, int rows, const Owners& owners);
    void choose(int row);
    void part_rows(int rows, std::vector<Part>& parts);
    void gather(Worker& worker, int rows);
    template <class MatrixOf>
    void multiply(Worker& worker, Product product, const std::vector<Part>& parts, int rows, MatrixOf matrix_of,
                  const Matrix* after);

    const Model& model_;
    const Kernels& kernels_;
    Workspace& space_;
    const RowQuantiser quantiser_;
    // [rows, chosen]: experts in ascending order, their shares, and where each has the row.
    std::vector<int> chosen_;
    std::vector<float> shares_;
    std::vector<int> place_;
    std::vector<int> ends_;  // [experts]
    // [layers]: a thread that comes late still asks how many items a layer's phases had, when the others are
    // layers further.
    std::vector<std::vector<Part>> parts_;
};

}  // namespace noria
