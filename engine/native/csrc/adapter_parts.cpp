#include "adapter_parts.h"

#include <algorithm>
#include <cstring>

#include "model.h"
#include "pack.h"
#include "pack_int8.h"

namespace noria {

namespace {

float* widened(Adapter& adapter, const Model& model, const void* source, float offset) {
    float* to = reinterpret_cast<float*>(adapter.memory.take(model.padded_hidden() * sizeof(float)));
    widen(model.float32, source, model.spec.hidden, to);
    for (int i = 0; i < model.spec.hidden; ++i) to[i] += offset;
    return to;
}

const void* copied(Adapter& adapter, const void* source, size_t bytes) {
    return std::memcpy(adapter.memory.take(bytes), source, bytes);
}

const float* vector(Adapter& adapter, const float* source, int count) {
    return source == nullptr ? nullptr : static_cast<const float*>(copied(adapter, source, count * sizeof(float)));
}

}  // namespace

const void* OwnTokens::find(int token) const {
    const auto place = std::lower_bound(ids.begin(), ids.end(), token);
    return place == ids.end() || *place != token ? nullptr : rows + (place - ids.begin()) * row_bytes;
}

Embed AdapterParts::embed(Embed source, int token) const {
    source.own = tokens.find(token);
    if (table != nullptr) source.rows = table;
    if (!embedding.none()) source.delta = &embedding;
    return source;
}

const Norm& AdapterParts::norm(int layer, int part, const Norm& own) const {
    if (norms.empty()) return own;
    const Norm& found = norms[place_of(layer, part)];
    return found.weight == nullptr ? own : found;
}

void put_norm(Adapter& adapter, const Model& model, int layer, int part, const void* weight, const void* bias) {
    std::vector<Norm>& norms = adapter.parts.norms;
    norms.resize(1 + 4 * static_cast<size_t>(model.spec.layers));
    Norm& norm = norms[AdapterParts::place_of(layer, part)];
    norm = model.norm_final;
    norm.weight = widened(adapter, model, weight, model.spec.norm_offset);
    if (bias != nullptr) norm.bias = widened(adapter, model, bias, 0.0f);
}

void put_table(Adapter& adapter, const Model& model, const void* table) {
    const size_t bytes = static_cast<size_t>(model.spec.vocab) * model.spec.hidden * model.element();
    adapter.parts.table = copied(adapter, table, bytes);
}

void put_head(Adapter& adapter, const Model& model, const void* source) {
    const int n = model.spec.vocab, k = model.spec.hidden;
    Matrix made = model.head;
    made.weights = adapter.memory.take(made.panels * made.panel_bytes);
    if (made.int8)
        pack_int8({model.float32, source, n, k, &made, 0, 16});
    else
        pack({model.float32, source, n, k, made.weights, kPanel, made.k, 0, 16});
    adapter.parts.head = made;
}

void put_embedding(Adapter& adapter, const Model& model, int rank, const void* a, const void* b,
                   const float* gain) {
    EmbedDelta& delta = adapter.parts.embedding;
    delta.b = adapter.pack(b, model.spec.hidden, rank);
    // Rows as long as B's sums: an odd rank ends with a zero.
    const size_t row = static_cast<size_t>(rank) * model.element();
    const size_t pitch = static_cast<size_t>(delta.b.k) * model.element();
    char* rows = adapter.memory.take(model.spec.vocab * pitch);
    for (int token = 0; token < model.spec.vocab; ++token)
        std::memcpy(rows + token * pitch, static_cast<const char*>(a) + token * row, row);
    delta.a = rows;
    delta.gain = vector(adapter, gain, model.spec.hidden);
}

void put_tokens(Adapter& adapter, const Model& model, int count, const int32_t* ids, const void* rows,
                bool in_head) {
    OwnTokens& tokens = adapter.parts.tokens;
    tokens.row_bytes = static_cast<long>(model.spec.hidden) * model.element();
    tokens.rows = static_cast<const char*>(copied(adapter, rows, count * tokens.row_bytes));
    if (in_head) tokens.head = adapter.pack(rows, count, model.spec.hidden);
    tokens.ids.assign(ids, ids + count);
}

}  // namespace noria
