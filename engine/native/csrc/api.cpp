#include "api.h"

#include <cstdio>
#include <exception>
#include <new>

#include "draws.h"
#include "forward.h"
#include "levels.h"
#include "model.h"

struct noria_model {
    noria_model(const noria_spec& spec, const noria::Kernels& kernels)
        : model(spec, kernels), forward(model), draws(model) {}
    noria::Model model;
    noria::Forward forward;
    noria::Draws draws;
};

struct noria_adapter {
    explicit noria_adapter(const noria::Model& m) : model(m), adapter(m.spec.layers, m.float32) {}
    const noria::Model& model;
    noria::Adapter adapter;
};

namespace {

// 0 once fill() is through, -1: no memory.
template <class Fill>
int32_t filled(Fill fill) {
    try {
        fill();
        return 0;
    } catch (const std::bad_alloc&) {
        return -1;
    }
}

}  // namespace

int32_t noria_level() { return noria::best_level(); }

float noria_disagreement(int32_t level) { return noria::disagreement(static_cast<noria::Level>(level)); }

noria_model* noria_create(const noria_spec* spec, char* error, int32_t size) {
    try {
        return new noria_model(*spec, noria::kernels_of(static_cast<noria::Level>(spec->level), spec->float32 != 0));
    } catch (const std::exception& problem) {  // no memory, or no threads
        std::snprintf(error, size, "%s", problem.what());
        return nullptr;
    }
}

void noria_destroy(noria_model* model) { delete model; }

void noria_put(noria_model* model, int32_t layer, int32_t part, const void* source) {
    model->model.put(layer, part, source);
}

void noria_put_expert(noria_model* model, int32_t layer, int32_t expert, int32_t part, const void* source) {
    model->model.put_expert(layer, expert, part, source);
}

void noria_put_bias(noria_model* model, int32_t layer, int32_t part, const void* source) {
    model->model.put_bias(layer, part, source);
}

int32_t noria_step(noria_model* model, const noria_batch* batch) {
    return filled([&] { model->forward.run(*batch); });
}

int32_t noria_draw_tokens(noria_model* model, const float* logits, noria_draw* rows, int32_t count) {
    return filled([&] { model->draws.run(logits, rows, count); });
}

void noria_watch(noria_model* model, int64_t* spent) { model->forward.watch.add_to(spent); }

void noria_copy(noria_model* model, const int32_t* pairs, int32_t count) {
    for (int i = 0; i < count; ++i) model->model.copy_block(pairs[2 * i], pairs[2 * i + 1]);
}

noria_adapter* noria_adapter_create(const noria_model* model) {
    try {
        return new noria_adapter(model->model);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

int32_t noria_adapter_pairs(noria_adapter* to, int32_t layer, int32_t group, const noria_pairs* pairs) {
    return filled([&] { noria::put_pairs(to->adapter, to->model, layer, static_cast<noria::Group>(group), *pairs); });
}

int32_t noria_adapter_affine(noria_adapter* to, int32_t layer, int32_t part, const float* gain,
                             const float* shift) {
    return filled([&] { noria::put_affine(to->adapter, to->model, layer, part, gain, shift); });
}

int32_t noria_adapter_norm(noria_adapter* to, int32_t layer, int32_t part, const void* weight, const void* bias) {
    return filled([&] { noria::put_norm(to->adapter, to->model, layer, part, weight, bias); });
}

int32_t noria_adapter_table(noria_adapter* to, const void* table) {
    return filled([&] { noria::put_table(to->adapter, to->model, table); });
}

int32_t noria_adapter_head(noria_adapter* to, const void* matrix) {
    return filled([&] { noria::put_head(to->adapter, to->model, matrix); });
}

int32_t noria_adapter_embedding(noria_adapter* to, int32_t rank, const void* a, const void* b, const float* gain) {
    return filled([&] { noria::put_embedding(to->adapter, to->model, rank, a, b, gain); });
}

int32_t noria_adapter_tokens(noria_adapter* to, int32_t count, const int32_t* ids, const void* rows,
                             int32_t in_head) {
    return filled([&] { noria::put_tokens(to->adapter, to->model, count, ids, rows, in_head != 0); });
}

int64_t noria_adapter_bytes(const noria_adapter* adapter) { return adapter->adapter.memory.bytes(); }

void noria_adapter_destroy(noria_adapter* adapter) { delete adapter; }

void noria_bind(noria_model* model, int32_t slot, const noria_adapter* adapter) {
    model->model.team.settle();
    model->model.slots.bind(slot, &adapter->adapter);
}

// A thread that is late may still look at the adapters of the step before.
void noria_unbind(noria_model* model, int32_t slot) {
    model->model.team.settle();
    model->model.slots.unbind(slot);
}
