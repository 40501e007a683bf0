// The end of a step: final norm, head, soft cap and likeliest token of the rows that are sampled.
#pragma once

#include <vector>

#include "model.h"
#include "plan.h"
#include "row_quantiser.h"
#include "workspace.h"

namespace noria {

class Head {
public:
    // All outlive it.
    Head(const Model& model, const Plan& plan, Workspace& space)
        : model_(model), kernels_(model.kernels), plan_(plan), space_(space), quantiser_(model, space) {}

    // After the plan was made, before the step's threads start. Throws std::bad_alloc.
    void reserve();
    // Every thread calls it, in kPhases phases at most. hidden: the rows under way.
    void work(Worker& worker, const float* hidden, float* logits, int32_t* best);

    static constexpr int kPhases = 4;

private:
    // A sampled row. Those that read the same matrix stand together, and among them those of one adapter.
    struct Line {
        const Matrix* matrix;
        const Change* changes;      // of its adapter, or none
        const AdapterParts* parts;  // the same
        int source;                 // place in plan.sampled, and of its logits
    };

    // Lines first .. first + rows - 1 times one matrix; `end`: of its items in the product's phase.
    struct Share {
        const Matrix* matrix;
        int first, rows, chunks, end;

        int first_of(int chunk) const { return first + rows * chunk / chunks; }
    };

    struct Item {
        const Share* share;
        int panel, chunk;
    };

    void lay_lines();
    void cut_shares();
    Item item(int index) const;
    void normalise(int line, const float* hidden, void* to) const;
    void read(int line, const float* hidden);
    void multiply(Worker& worker, Product product, const float* hidden);
    Ahead foresee(int panel) const;
    void score_tokens(int line, int thread, float* logits);

    // As in Product.
    int change() const { return model_.spec.layers * kGroups; }

    const Model& model_;
    const Kernels& kernels_;
    const Plan& plan_;
    Workspace& space_;
    const RowQuantiser quantiser_;
    std::vector<Line> lines_;
    std::vector<int> places_;             // [lines] row of the logits
    std::vector<const Change*> changes_;  // [lines]
    std::vector<Share> shares_;
    bool adds_ = false;     // adapters add to the product of some line
    bool changed_ = false;  // or some line has another head
    int items_ = 0;
    std::vector<float> scores_;  // of an adapter's own tokens: [threads][scores_stride_]
    long scores_stride_ = 0;
};

}  // namespace noria
