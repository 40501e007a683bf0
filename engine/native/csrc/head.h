// The end of a step: final norm, head, soft cap; of rows that are sampled the logits and the likeliest token, of
// others what the logits say of a token. Those are worked through pass by pass, so that few logits are there at once.
#pragma once

#include <memory>
#include <vector>

#include "model.h"
#include "plan.h"
#include "row_quantiser.h"
#include "workspace.h"

namespace noria {

constexpr int kPassRows = 64;  // scored rows of one pass; engine/memory.py reckons with it

// Where a step's results go, as in noria_batch.
struct Results {
    float* logits;
    int32_t* best;
    int top;
    float* logprobs;
    int32_t* ranks;
    int32_t* top_ids;
    float* top_logprobs;
};

class Head {
public:
    // All outlive it.
    Head(const Model& model, const Plan& plan, Workspace& space)
        : model_(model), kernels_(model.kernels), plan_(plan), space_(space), quantiser_(model, space) {}

    // After the plan was made, before the step's threads start. Throws std::bad_alloc.
    void reserve();
    // Every thread calls it. hidden: the rows under way.
    void work(Worker& worker, const float* hidden, const Results& to);
    // Of work(), at most.
    int phases() const { return kPhases * count_; }

private:
    static constexpr int kPhases = 4;  // of a pass

    // A row whose logits are wanted. Those that read the same matrix stand together, and among them those of one adapter.
    struct Line {
        const Matrix* matrix;
        const Change* changes;      // of its adapter, or none
        const AdapterParts* parts;  // the same
        int source;                 // place in plan.wanted
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

    // Rows whose logits are made together.
    struct Pass {
        int first = 0;  // of plan.wanted
        std::vector<Line> lines;
        std::vector<int> places;             // [lines] row of the logits
        std::vector<const Change*> changes;  // [lines]
        std::vector<Share> shares;
        bool adds = false;     // adapters add to the product of some line
        bool changed = false;  // or some line has another head
        int items = 0;
    };

    void lay_pass(int first, int end);
    void lay_lines(Pass& pass, int end) const;
    void cut_shares(Pass& pass) const;
    Item item(const Pass& pass, int index) const;
    void normalise(const Line& line, int place, const float* hidden, void* to) const;
    void read(const Pass& pass, int line, const float* hidden);
    void multiply(Worker& worker, const Pass& pass, Product product, const float* hidden);
    Ahead foresee(const Pass& pass, int panel) const;
    void give(const Line& line, float* logits, const Results& to) const;
    void score_tokens(const AdapterParts* parts, int line, int thread, float* logits);

    // As in Product.
    int change() const { return model_.spec.layers * kGroups; }

    const Model& model_;
    const Kernels& kernels_;
    const Plan& plan_;
    Workspace& space_;
    const RowQuantiser quantiser_;
    std::vector<Pass> passes_;  // of this step the first count_
    int count_ = 0;
    std::unique_ptr<float[]> scored_;  // [kPassRows, vocab] once anything is scored
    std::vector<float> scores_;  // of an adapter's own tokens: [threads][scores_stride_]
    long scores_stride_ = 0;
};

}  // namespace noria
