// One step: embedding, layers, norm, head. Every thread runs work(); the phases divide it.
#pragma once

#include "model.h"
#include "plan.h"
#include "workspace.h"

namespace noria {

class Forward : public Step {
public:
    explicit Forward(Model& model);
    ~Forward() override { model_.team.settle(); }

    // Fills batch.logits. Throws std::bad_alloc before anything is computed.
    void run(const noria_batch& batch);
    void work(Worker& worker) override;

private:
    // Rows that a product reads; `own` where this thread has normalised them for itself.
    struct Input {
        const void* rows;
        long stride;
    };

    void embed(Worker& worker);
    void attention(Worker& worker, int layer);
    void mlp(Worker& worker, int layer);
    void logits(Worker& worker);

    template <class RowOf>
    void multiply_normed(Worker& worker, const float* norm, int rows, RowOf row_of, Product product,
                         const Matrix* after, const GroupDeltas* deltas);
    template <class Ready>
    void multiply(Worker& worker, Product product, int rows, const Matrix* after, const GroupDeltas* deltas,
                  Ready ready);
    void expand(Worker& worker, const GroupDeltas* deltas, float* y, long y_stride);
    void shrink(const Delta& delta, const Input& input);
    void attend(Worker& worker, const Layer& layer);
    void prepare(const Heads& heads, const Layer& layer, int row, int kv_head);

    Model& model_;
    const Kernels& kernels_;
    Plan plan_;
    Workspace space_;
    float* logits_ = nullptr;
};

}  // namespace noria
