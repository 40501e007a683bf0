#include "forward.h"

#include <cmath>
#include <cstring>

namespace noria {

namespace {

constexpr int kRowChunk = 192;      // rows of one item of a product: they stay in the cache from panel to panel
constexpr int kStreamRows = 4;      // a product of so few only waits for memory, which the processor fetches itself
constexpr int kPhasesOfLayer = 17;  // at most; with embedding, norm, head and choice beside them

}  // namespace

Forward::Forward(Model& model)
    : model_(model), kernels_(model.kernels), plan_(model), space_(model) {}

void Forward::run(const noria_batch& batch) {
    model_.team.settle();
    plan_.make(batch);
    space_.reserve(plan_.rows, plan_.rank);
    logits_ = batch.logits;
    best_ = batch.best;
    watch.begin();
    model_.team.run(*this, kPhasesOfLayer * model_.spec.layers + 5);
}

void Forward::work(Worker& worker) {
    embed(worker);
    watch.mark(worker.thread(), NORIA_SPENT_EMBED);
    Stream stream = {space_.hidden, space_.seen, plan_.rows};
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
    logits(worker, stream);
    watch.mark(worker.thread(), NORIA_SPENT_HEAD);
}

void Forward::embed(Worker& worker) {
    const noria_spec& spec = model_.spec;
    const int half = spec.head_dim / 2;
    const Embed source = {model_.embedding, &model_.head, spec.hidden};
    worker.phase(plan_.rows, [&](int row, int) {
        float* x = space_.hidden + row * space_.hidden_stride;
        kernels_.embed(source, plan_.tokens[row], x);
        for (long i = spec.hidden; i < space_.hidden_stride; ++i) x[i] = 0.0f;
        const float position = static_cast<float>(plan_.positions[row]);
        for (int i = 0; i < half; ++i) {
            const float angle = position * model_.rotary[i];
            space_.cos[row * half + i] = std::cos(angle) * spec.rotary_scale;
            space_.sin[row * half + i] = std::sin(angle) * spec.rotary_scale;
        }
    });
}

void Forward::project(Worker& worker, int index, const Stream& stream) {
    const Layer& layer = model_.layers[index];
    const auto every = [](int row) { return row; };
    const Product fused = {&layer.qkv, nullptr, 0, space_.fused, space_.fused_stride, nullptr, 0, Into::kStore};
    const GroupDeltas* deltas = plan_.deltas(index, kQkv);
    multiply_normed(worker, layer.norm_attention, stream.hidden, stream.rows, every, fused, &layer.o, deltas);
    expand(worker, deltas, space_.fused, space_.fused_stride);
}

void Forward::output(Worker& worker, int index, const Stream& stream) {
    const Layer& layer = model_.layers[index];
    const Product out = {&layer.o, stream.seen, space_.seen_stride, stream.hidden, space_.hidden_stride,
                         nullptr,  0,           Into::kAdd};
    const GroupDeltas* deltas = plan_.deltas(index, kO);
    multiply(worker, out, stream.rows, &layer.gate_up, deltas, [](Product&) {});
    expand(worker, deltas, stream.hidden, space_.hidden_stride);
}

void Forward::mlp(Worker& worker, int index, const Stream& stream) {
    const Layer& layer = model_.layers[index];
    const auto every = [](int row) { return row; };
    const GroupDeltas* deltas = plan_.deltas(index, kGateUp);
    const Into into = deltas == nullptr ? Into::kGated : Into::kStore;
    const Product both = {&layer.gate_up, nullptr, 0, space_.gate_up, space_.gate_up_stride,
                          space_.gated,   space_.gated_stride, into};
    multiply_normed(worker, layer.norm_mlp, stream.hidden, stream.rows, every, both, &layer.down, deltas);
    if (deltas != nullptr) {
        expand(worker, deltas, space_.gate_up, space_.gate_up_stride);
        worker.phase(stream.rows, [&](int row, int) {
            kernels_.gate(space_.gate_up + row * space_.gate_up_stride, layer.gate_up.panels,
                          space_.typed(space_.gated, row, space_.gated_stride));
        });
    }
    watch.mark(worker.thread(), NORIA_SPENT_GATE_UP);
    const bool last = index + 1 == model_.spec.layers;
    const Product down = {&layer.down, space_.gated, space_.gated_stride, stream.hidden, space_.hidden_stride,
                          nullptr,     0,            Into::kAdd};
    deltas = plan_.deltas(index, kDown);
    multiply(worker, down, stream.rows, last ? &model_.head : &model_.layers[index + 1].qkv, deltas,
             [](Product&) {});
    expand(worker, deltas, stream.hidden, space_.hidden_stride);
}

void Forward::logits(Worker& worker, const Stream& stream) {
    const int rows = static_cast<int>(plan_.sampled.size());
    if (rows == 0) return;
    const Product head = {&model_.head, nullptr, 0, logits_, model_.spec.vocab, nullptr, 0, Into::kExact};
    const auto row_of = [&](int i) { return plan_.trims ? i : plan_.sampled[i]; };
    multiply_normed(worker, model_.norm_final, stream.hidden, rows, row_of, head, nullptr, nullptr);
    worker.phase(rows, [&](int row, int) {
        const int vocab = model_.spec.vocab;
        best_[row] = kernels_.best(logits_ + static_cast<long>(row) * vocab, vocab);
    });
}

// What is left of the rows goes on side by side, in the order of the logits.
Forward::Stream Forward::trim(Worker& worker) {
    const Stream left = {space_.last_hidden, space_.last_seen, static_cast<int>(plan_.sampled.size())};
    const size_t seen_bytes = space_.seen_stride * model_.element();
    worker.phase(left.rows, [&](int i, int) {
        const int row = plan_.sampled[i];
        std::memcpy(left.hidden + i * space_.hidden_stride, space_.hidden + row * space_.hidden_stride,
                    space_.hidden_stride * sizeof(float));
        std::memcpy(space_.typed(left.seen, i, space_.seen_stride),
                    space_.typed(space_.seen, row, space_.seen_stride), seen_bytes);
    });
    return left;
}

// The product of normalised rows of the residual stream. Few rows are normalised by each thread for itself,
// when it gets its first item: cheaper than to wait for one another once more.
template <class RowOf>
void Forward::multiply_normed(Worker& worker, const float* weight, const float* hidden, int rows,
                              RowOf row_of, Product product, const Matrix* after, const GroupDeltas* deltas) {
    const Norm norm = {weight, model_.spec.eps, model_.spec.hidden, model_.layers[0].down.panels * kPanel};
    const auto one = [&](int i, void* to) {
        kernels_.normalise(norm, hidden + row_of(i) * space_.hidden_stride,
                           space_.typed(to, i, space_.normed_stride));
    };
    product.x_stride = space_.normed_stride;
    if (rows <= kPrivateRows) {
        void* own = space_.typed(space_.own, static_cast<long>(worker.thread()) * kPrivateRows, space_.normed_stride);
        multiply(worker, product, rows, after, deltas, [&](Product& p) {
            for (int i = 0; i < rows; ++i) one(i, own);
            p.x = own;
        });
        return;
    }
    worker.phase(rows, [&](int i, int) { one(i, space_.normed); });
    product.x = space_.normed;
    multiply(worker, product, rows, after, deltas, [](Product&) {});
}

// ready(product) runs before this thread's first item. `after`: what the next product will read.
template <class Ready>
void Forward::multiply(Worker& worker, Product product, int rows, const Matrix* after,
                       const GroupDeltas* deltas, Ready ready) {
    const Matrix& matrix = *product.matrix;
    const int shrinks = deltas == nullptr ? 0 : static_cast<int>(deltas->shrinks.size());
    const int chunks = (rows + kRowChunk - 1) / kRowChunk;
    const bool own = rows <= kPrivateRows;
    if (matrix.int8 && !own) quantise_shared(worker, product, rows);
    bool prepared = false;
    worker.phase(shrinks + matrix.panels * chunks, [&](int item, int following) {
        if (!prepared) {
            ready(product);
            if (matrix.int8 && own) quantise_own(worker, product, rows);
        }
        prepared = true;
        if (item < shrinks) return shrink(deltas->shrinks[item], {product.x, product.x_stride});
        const int panel = (item - shrinks) % matrix.panels, chunk = (item - shrinks) / matrix.panels;
        const int first = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
        const char* next = nullptr;
        if (following >= shrinks && rows > kStreamRows)
            next = matrix.panel((following - shrinks) % matrix.panels);
        else if (following < 0 && after != nullptr)
            next = after->panel(worker.first_of(after->panels));
        kernels_.multiply(product, panel, first, end - first, next);
    });
}

void Forward::quantise_shared(Worker& worker, Product& product, int rows) {
    worker.phase(rows, [&](int row, int) { quantise(worker, product, row, space_.quantised); });
    product.quantised = space_.quantised;
    product.quantised_stride = space_.quantised_stride;
}

void Forward::quantise_own(Worker& worker, Product& product, int rows) {
    uint8_t* own = space_.own_quantised + worker.thread() * kPrivateRows * space_.quantised_stride;
    for (int row = 0; row < rows; ++row) quantise(worker, product, row, own);
    product.quantised = own;
    product.quantised_stride = space_.quantised_stride;
}

void Forward::quantise(const Worker& worker, const Product& product, int row, uint8_t* rows) {
    const char* x = static_cast<const char*>(product.x) + row * product.x_stride * model_.element();
    float* turned = space_.turned + worker.thread() * space_.turned_stride;
    kernels_.quantise(x, product.matrix->in, turned, rows + row * space_.quantised_stride);
}

void Forward::shrink(const Delta& delta, const Input& input) {
    const char* x = static_cast<const char*>(input.rows) + delta.first * input.stride * model_.element();
    void* to = space_.typed(space_.inner, static_cast<long>(delta.place) * plan_.rows + delta.first,
                            space_.inner_stride);
    kernels_.shrink(delta.pair->a, x, input.stride, delta.rows, to, space_.inner_stride);
}

void Forward::expand(Worker& worker, const GroupDeltas* deltas, float* y, long y_stride) {
    if (deltas == nullptr) return;
    worker.phase(static_cast<int>(deltas->expands.size()), [&](int item, int) {
        const DeltaPart& part = deltas->expands[item];
        const Delta& delta = *part.delta;
        const void* inner = space_.typed(space_.inner, static_cast<long>(delta.place) * plan_.rows + delta.first,
                                         space_.inner_stride);
        float* to = y + delta.first * y_stride + delta.column;
        for (int panel = part.panel; panel < part.panel + part.panels; ++panel)
            kernels_.expand(delta.pair->b, panel, inner, space_.inner_stride, delta.rows, to, y_stride,
                            delta.pitch);
    });
}

void Forward::prepare(const Heads& heads, const Layer& layer, int row, int kv_head) {
    const Span& span = plan_.span(plan_.span_of[row], layer.group);
    const int position = plan_.positions[row], half = heads.head_dim / 2;
    const int group = heads.heads / heads.kv_heads;
    const Rotation turn = {space_.cos + row * half, space_.sin + row * half};
    const long query = (static_cast<long>(kv_head) * plan_.rows + row) * group;
    kernels_.prepare(heads, space_.fused + row * space_.fused_stride, turn, kv_head,
                     space_.typed(space_.queries, query, heads.padded_dim),
                     space_.typed(layer.cache, span.table[position / kBlock], heads.block_elements),
                     position % kBlock);
}

void Forward::attend(Worker& worker, const Layer& layer, const std::vector<Tile>& tiles) {
    const Heads heads = model_.heads_of(layer);
    const int group = heads.heads / heads.kv_heads;
    if (!plan_.single) {
        worker.phase(plan_.rows, [&](int row, int) {
            for (int kv_head = 0; kv_head < heads.kv_heads; ++kv_head) prepare(heads, layer, row, kv_head);
        });
    }
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
        kernels_.attend(a, tile.first, tile.rows, space_.scratch + worker.thread() * space_.scratch_stride);
    });
}

}  // namespace noria
