// One step: embedding, layers, norm, head. Every thread runs work(); the phases divide it.
#pragma once

#include "experts.h"
#include "head.h"
#include "model.h"
#include "plan.h"
#include "row_quantiser.h"
#include "watch.h"
#include "workspace.h"

namespace noria {

class Forward : public Step {
public:
    explicit Forward(Model& model);
    ~Forward() override { model_.team.settle(); }

    // Fills batch.logits and batch.best. Throws std::bad_alloc before anything is computed.
    void run(const noria_batch& batch);
    void work(Worker& worker) override;

    Watch watch;

private:
    // Rows that a product reads; `own` where this thread has normalised them for itself.
    struct Input {
        const void* rows;
        long stride;
    };

    // The rows under way: all of them, but in the last layer of a step that trims those that are sampled.
    struct Stream {
        float* hidden;
        void* seen;
        int rows;
    };

    void embed(Worker& worker);
    void project(Worker& worker, int layer, const Stream& stream);
    void attend(Worker& worker, const Layer& layer, const std::vector<Tile>& tiles);
    Stream trim(Worker& worker);
    void output(Worker& worker, int layer, const Stream& stream);
    void mlp(Worker& worker, int layer, const Stream& stream);

    // norm_of(row): the norm that a row passes.
    template <class NormOf>
    void multiply_normed(Worker& worker, NormOf norm_of, const Stream& stream, Product product,
                         const Matrix* after, const GroupDeltas* deltas);
    template <class NormOf>
    void join(Worker& worker, Product product, NormOf norm_of, const Stream& stream, const Matrix* after,
              const GroupDeltas* deltas);
    template <class Ready>
    void multiply(Worker& worker, Product product, int rows, const Matrix* after, const GroupDeltas* deltas,
                  Ready ready);
    void expand(Worker& worker, const GroupDeltas* deltas, float* y, long y_stride);
    void shrink(const Delta& delta, const Input& input);
    void prepare(const Heads& heads, const Layer& layer, int row, int kv_head);

    // Where cos and sin of a row's position begin, in one of the model's ways of rotating.
    long angles_at(int rotation, int row) const {
        return (static_cast<long>(rotation) * plan_.rows + row) * (model_.spec.turned / 2);
    }

    Model& model_;
    const Kernels& kernels_;
    Plan plan_;
    Workspace space_;
    const RowQuantiser quantiser_;
    Mixture mixture_;
    Head head_;
    float* logits_ = nullptr;
    int32_t* best_ = nullptr;
};

}  // namespace noria
