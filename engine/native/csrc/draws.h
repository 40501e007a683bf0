// Tokens out of logits, as engine/sampler.py makes them: what a request changes in a row, then temperature, min_p,
// top_k, top_p and one draw. A row is one item: all of it happens on one thread, in one order, whatever is beside it.
#pragma once

#include <vector>

#include "model.h"

namespace noria {

class Draws : public Step {
public:
    explicit Draws(Model& model) : model_(model), kernels_(model.kernels) {}
    ~Draws() override { model_.team.settle(); }

    // Throws std::bad_alloc before anything is drawn.
    void run(const float* logits, noria_draw* rows, int count);
    void work(Worker& worker) override;

private:
    // Of one thread.
    struct Room {
        std::vector<float> values, found;  // [vocab]
        std::vector<int32_t> counts;       // [vocab] zeros between two rows
        std::vector<double> sums;          // [vocab / kShareSum, rounded up]
    };

    void finish(noria_draw& row, Room& room) const;
    int draw(const noria_draw& row, Room& room) const;
    void adjust(const noria_draw& row, Room& room) const;
    void penalise(const noria_draw& row, Room& room) const;
    float kth_highest(int k, Room& room) const;
    double keep_nucleus(double mass, double total, Room& room) const;

    Model& model_;
    const Kernels& kernels_;
    std::vector<Room> rooms_;
    const float* logits_ = nullptr;
    noria_draw* rows_ = nullptr;
    int count_ = 0;
};

}  // namespace noria
