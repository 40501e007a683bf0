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

    // Fills what the batch has room for. Throws std::bad_alloc before anything is computed.
    void run(const noria_batch& batch);
    void work(Worker& worker) override;

    Watch watch;

private:
    // The rows under way: all of them, but in the last layer of a step that trims those whose logits are wanted.
    struct Stream {
        float* hidden;
        void* seen;
        int rows;
        const Owners* owners;
    };

    void embed(Worker& worker);
    void project(Worker& worker, int layer, const Stream& stream);
    void attend(Worker& worker, const Layer& layer, const std::vector<Tile>& tiles);
    Stream trim(Worker& worker);
    void output(Worker& worker, int layer, const Stream& stream);
    void mlp(Worker& worker, int layer, const Stream& stream);

    void adapt(Product& product, const Stream& stream, int layer, Group group) const;
    // norm_of(row): the norm that a row passes.
    template <class NormOf>
    void multiply_normed(Worker& worker, NormOf norm_of, const Stream& stream, Product product, const Matrix* after);
    template <class NormOf>
    void join(Worker& worker, Product product, NormOf norm_of, const Stream& stream, const Matrix* after);
    template <class Ready>
    void multiply(Worker& worker, Product product, const Stream& stream, const Matrix* after, Ready ready);
    void shrink(const Product& product, const Shrink& shrink);
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
    Results results_ = {};
};

}  // namespace noria
