#include "forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "foresight.h"

namespace noria {

namespace {

constexpr int kPhasesOfLayer = 12 + Mixture::kPhases;  // at most; with embedding and head beside them

}  // namespace

Forward::Forward(Model& model)
    : model_(model), kernels_(model.kernels), plan_(model), space_(model), quantiser_(model, space_), mixture_(model, space_),
      head_(model, plan_, space_) {}

void Forward::run(const noria_batch& batch) {
    model_.team.settle();
    plan_.make(batch);
    space_.reserve(plan_.rows, plan_.owners.most_ranks());
    mixture_.reserve(plan_.rows);
    head_.reserve();
    results_ = {batch.logits, batch.best, batch.top, batch.logprobs, batch.ranks, batch.top_ids, batch.top_logprobs};
    watch.begin();
    model_.team.run(*this, kPhasesOfLayer * model_.spec.layers + 1 + head_.phases());
}

void Forward::work(Worker& worker) {
    embed(worker);
    watch.mark(worker.thread(), NORIA_SPENT_EMBED);
    Stream stream = {space_.hidden, space_.seen, plan_.rows, &plan_.owners};
    for (int index = 0; index < model_.spec.layers; ++index) {
        const Layer& layer = model_.layers[index];
        const bool trims = plan_.trims && index + 1 == model_.spec.layers;
        project(worker, index, stream);
        watch.mark(worker.thread(), NORIA_SPENT_QKV);
        attend(worker, layer, trims ? plan_.last_tiles : plan_.tiles);
        if (trims) stream = trim(worker);
        watch.mark(worker.thread(), NORIA_SPENT_ATTENTION);
        if (stream.rows == 0) return;
        output(worker, index, stream);
        watch.mark(worker.thread(), NORIA_SPENT_O);
        mlp(worker, index, stream);
        watch.mark(worker.thread(), NORIA_SPENT_DOWN);
    }
    head_.work(worker, stream.hidden, results_);
    watch.mark(worker.thread(), NORIA_SPENT_HEAD);
}

void Forward::embed(Worker& worker) {
    const noria_spec& spec = model_.spec;
    const int half = spec.turned / 2;
    const Embed source = {model_.embedding, &model_.head, model_.places, spec.hidden, spec.embedding_scale};
    worker.phase(plan_.rows, [&](int row, int) {
        float* x = space_.hidden + row * space_.hidden_stride;
        const int position = plan_.positions[row];
        const int token = plan_.tokens[row];
        const AdapterParts* parts = plan_.owners.parts(row);
        kernels_.embed(parts == nullptr ? source : parts->embed(source, token), token, spec.first_place + position, x);
        for (long i = spec.hidden; i < space_.hidden_stride; ++i) x[i] = 0.0f;
        for (int turn = 0; turn < spec.rotations; ++turn) {
            const float *inverse = model_.rotary.data() + turn * half, scale = model_.rotary_scales[turn];
            const long at = angles_at(turn, row);
            for (int i = 0; i < half; ++i) {
                const float angle = static_cast<float>(position) * inverse[i];
                space_.cos[at + i] = std::cos(angle) * scale;
                space_.sin[at + i] = std::sin(angle) * scale;
            }
        }
    });
}

void Forward::project(Worker& worker, int index, const Stream& stream) {
    const Layer& layer = model_.layers[index];
    const auto norm_of = [&](int row) -> const Norm& {
        return stream.owners->norm(row, index, NORIA_NORM_ATTENTION, layer.before_attention);
    };
    Product fused{&layer.qkv};
    fused.y = space_.fused, fused.y_stride = space_.fused_stride;
    adapt(fused, stream, index, kQkv);
    multiply_normed(worker, norm_of, stream, fused, &layer.o);
}

void Forward::output(Worker& worker, int index, const Stream& stream) {
    const Layer& layer = model_.layers[index];
    Product out{&layer.o};
    out.x = stream.seen, out.x_stride = space_.seen_stride;
    const Matrix* after = layer.experts.empty() ? &layer.mlp.gate_up : &layer.router;
    const auto norm_of = [&](int row) -> const Norm& {
        return stream.owners->norm(row, index, NORIA_NORM_AFTER_ATTENTION, layer.after_attention);
    };
    adapt(out, stream, index, kO);
    join(worker, out, norm_of, stream, after);
}

void Forward::mlp(Worker& worker, int index, const Stream& stream) {
    const Layer& layer = model_.layers[index];
    const Matrix* after = index + 1 == model_.spec.layers ? &model_.head : &model_.layers[index + 1].qkv;
    if (!layer.experts.empty()) return mixture_.work(worker, index, stream.hidden, stream.rows, *stream.owners, after);
    const auto before = [&](int row) -> const Norm& {
        return stream.owners->norm(row, index, NORIA_NORM_MLP, layer.before_mlp);
    };
    const auto behind = [&](int row) -> const Norm& {
        return stream.owners->norm(row, index, NORIA_NORM_AFTER_MLP, layer.after_mlp);
    };
    Product both{&layer.mlp.gate_up};
    both.y = space_.gate_up, both.y_stride = space_.gate_up_stride;
    both.out = space_.gated, both.out_stride = space_.gated_stride, both.gate = model_.gate();
    both.into = model_.fuses_gate() ? Into::kSiluGated : Into::kGated;
    adapt(both, stream, index, kGateUp);
    multiply_normed(worker, before, stream, both, &layer.mlp.down);
    watch.mark(worker.thread(), NORIA_SPENT_GATE_UP);
    Product down{&layer.mlp.down};
    down.x = space_.gated, down.x_stride = space_.gated_stride;
    adapt(down, stream, index, kDown);
    join(worker, down, behind, stream, after);
}

// What the adapters of the stream's rows make of a product.
void Forward::adapt(Product& product, const Stream& stream, int layer, Group group) const {
    product.change = layer * kGroups + group;
    if (stream.owners->touch(product.change)) product.changes = stream.owners->changes();
    product.inner = space_.inner, product.inner_stride = space_.inner_stride;
}

// The product that ends attention or MLP: onto the rows, or beside them first where a norm stands between.
template <class NormOf>
void Forward::join(Worker& worker, Product product, NormOf norm_of, const Stream& stream, const Matrix* after) {
    const bool apart = model_.spec.norms_after != 0;
    product.y = apart ? space_.branch : stream.hidden, product.y_stride = space_.hidden_stride;
    product.into = apart ? Into::kStore : Into::kAdd;
    multiply(worker, product, stream, after, [](Product&) {});
    if (!apart) return;
    worker.phase(stream.rows, [&](int row, int) {
        kernels_.add_normed(norm_of(row), space_.branch + row * space_.hidden_stride,
                            stream.hidden + row * space_.hidden_stride);
    });
}

// What is left of the rows goes on side by side, in the order of the logits.
Forward::Stream Forward::trim(Worker& worker) {
    const Stream left = {space_.last_hidden, space_.last_seen, static_cast<int>(plan_.wanted.size()),
                         &plan_.last_owners};
    const size_t seen_bytes = space_.seen_stride * model_.element();
    worker.phase(left.rows, [&](int i, int) {
        const int row = plan_.wanted[i];
        std::memcpy(left.hidden + i * space_.hidden_stride, space_.hidden + row * space_.hidden_stride,
                    space_.hidden_stride * sizeof(float));
        std::memcpy(space_.typed(left.seen, i, space_.seen_stride),
                    space_.typed(space_.seen, row, space_.seen_stride), seen_bytes);
    });
    return left;
}

// The product of normalised rows of the residual stream. Few rows are normalised by each thread for itself,
// when it gets its first item: cheaper than to wait for one another once more.
template <class NormOf>
void Forward::multiply_normed(Worker& worker, NormOf norm_of, const Stream& stream, Product product,
                              const Matrix* after) {
    const auto one = [&](int row, void* to) {
        kernels_.normalise(norm_of(row), stream.hidden + row * space_.hidden_stride,
                           space_.typed(to, row, space_.normed_stride));
    };
    const int rows = stream.rows;
    product.x_stride = space_.normed_stride;
    if (rows <= kPrivateRows) {
        void* own = space_.typed(space_.own, static_cast<long>(worker.thread()) * kPrivateRows, space_.normed_stride);
        multiply(worker, product, stream, after, [&](Product& p) {
            for (int row = 0; row < rows; ++row) one(row, own);
            p.x = own;
        });
        return;
    }
    worker.phase(rows, [&](int row, int) { one(row, space_.normed); });
    product.x = space_.normed;
    multiply(worker, product, stream, after, [](Product&) {});
}

// ready(product) runs before this thread's first item. `after`: what the next product will read. A x has to be
// there before the first sums are put away, not before the first items begin.
template <class Ready>
void Forward::multiply(Worker& worker, Product product, const Stream& stream, const Matrix* after, Ready ready) {
    const Matrix& matrix = *product.matrix;
    const int rows = stream.rows, chunks = (rows + kRowChunk - 1) / kRowChunk;
    const bool own = rows <= kPrivateRows;
    if (matrix.int8 && !own) quantiser_.shared(worker, product, rows);
    bool prepared = false;
    const auto prepare = [&] {
        if (prepared) return;
        ready(product);
        if (matrix.int8 && own) quantiser_.own(worker, product, rows);
        prepared = true;
    };
    const int shrinks = product.changes == nullptr ? 0 : stream.owners->shrinks();
    const int shrinking = worker.begin(shrinks, [&](int item, int) {
        prepare();
        shrink(product, stream.owners->shrink(item, product.change));
    });
    const int items = matrix.panels * chunks;
    Foresight foresight(stream.owners, product.change, kGroups * model_.spec.layers, worker, items);
    bool shrunk = shrinks == 0;
    worker.phase(items, [&](int item, int following) {
        prepare();
        const int panel = item % matrix.panels, chunk = item / matrix.panels;
        const int first = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
        const char* next = nullptr;
        if (following >= 0 && rows > kStreamRows)
            next = matrix.panel(following % matrix.panels);
        else if (following < 0 && after != nullptr)
            next = after->panel(worker.first_of(after->panels));
        if (following >= 0)
            foresight.look(product.change, following % matrix.panels);
        else if (after != nullptr)
            foresight.look(product.change + 1, worker.first_of(after->panels));
        product.ahead = &foresight.pieces;
        if (shrunk || !own) {
            if (!shrunk) worker.wait(shrinking, shrinks);
            kernels_.multiply(product, panel, first, end - first, next);
        } else {
            alignas(64) float sums[kPrivateRows][kPanel];
            Product base = product;
            base.changes = nullptr, base.into = Into::kStore;
            base.y = sums[0] - static_cast<long>(panel) * kPanel, base.y_stride = kPanel;
            kernels_.multiply(base, panel, 0, rows, next);
            worker.wait(shrinking, shrinks);
            kernels_.deliver(product, panel, 0, rows, sums);
        }
        shrunk = true;
    });
}

void Forward::shrink(const Product& product, const Shrink& shrink) {
    const Stretch& stretch = *shrink.stretch;
    const char* x = static_cast<const char*>(product.x) + stretch.first * product.x_stride * model_.element();
    kernels_.inward(*shrink.change, shrink.first, shrink.end, x, product.x_stride, product.matrix->in, stretch.rows,
                    space_.typed(space_.inner, stretch.first, space_.inner_stride), space_.inner_stride);
}

void Forward::prepare(const Heads& heads, const Layer& layer, int row, int kv_head) {
    const Span& span = plan_.span(plan_.span_of[row], layer.group);
    const int position = plan_.positions[row], group = heads.heads / heads.kv_heads;
    const long angles = angles_at(layer.rotation, row);
    const Rotation turn = {space_.cos + angles, space_.sin + angles};
    const long query = (static_cast<long>(kv_head) * plan_.rows + row) * group;
    char* block = static_cast<char*>(layer.cache) +
                  span.table[position / kBlock] * heads.block_elements * model_.cache_element();
    const auto prepare = model_.spec.int8_cache ? kernels_.prepare_int8 : kernels_.prepare;
    prepare(heads, space_.fused + row * space_.fused_stride, turn, kv_head,
            space_.typed(space_.queries, query, heads.padded_dim), block, position % kBlock);
}

void Forward::attend(Worker& worker, const Layer& layer, const std::vector<Tile>& tiles) {
    const Heads heads = model_.heads_of(layer);
    const int group = heads.heads / heads.kv_heads;
    if (!plan_.single) {
        worker.phase(plan_.rows, [&](int row, int) {
            for (int kv_head = 0; kv_head < heads.kv_heads; ++kv_head) prepare(heads, layer, row, kv_head);
        });
    }
    const auto attend = model_.spec.int8_cache ? kernels_.attend_int8 : kernels_.attend;
    worker.phase(static_cast<int>(tiles.size()), [&](int item, int following) {
        const Tile& tile = tiles[item];
        const Tile* next = following < 0 ? nullptr : &tiles[following];
        const Span& span = plan_.span(tile.span, layer.group);
        if (plan_.single) prepare(heads, layer, span.row, tile.kv_head);
        const long query = (static_cast<long>(tile.kv_head) * plan_.rows + span.row) * group;
        const Attend a = {&heads,      &span,       space_.typed(space_.queries, query, heads.padded_dim),
                          layer.cache, space_.seen, space_.seen_stride, layer.window, tile.kv_head,
                          next == nullptr ? nullptr : &plan_.span(next->span, layer.group),
                          next == nullptr ? 0 : next->kv_head};
        attend(a, tile.first, tile.rows, space_.scratch + worker.thread() * space_.scratch_stride);
    });
}

}  // namespace noria
