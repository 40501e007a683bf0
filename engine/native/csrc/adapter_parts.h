// What one adapter changes beside the products of linear modules: embedding, norms, single tokens, the head's matrix.
// Holds no memory: that is the adapter's.
#pragma once

#include <cstdint>
#include <vector>

#include "api.h"
#include "kernels.h"

namespace noria {

// Single tokens with rows of their own in the embedding table.
struct OwnTokens {
    std::vector<int32_t> ids;    // ascending
    const char* rows = nullptr;  // T [ids, hidden]
    long row_bytes = 0;
    Narrow head;  // n = ids, k = hidden: the same rows, where their logits come from them too

    const void* find(int token) const;
};

struct AdapterParts {
    const void* table = nullptr;  // T [vocab, hidden], in place of the embedding's
    EmbedDelta embedding;
    std::vector<Norm> norms;  // by place_of; empty where none is replaced
    Matrix head;  // in place of the model's; none: weights are none
    OwnTokens tokens;

    // Whether a row that has the adapter differs in anything that is kept here.
    bool none() const { return !changes_rows() && !changes_head(); }
    bool changes_head() const { return head.weights != nullptr || tokens.head.weights != nullptr; }
    // The way of a token into the rows.
    Embed embed(Embed source, int token) const;
    // `own` where the adapter has none in its place.
    const Norm& norm(int layer, int part, const Norm& own) const;

    static int place_of(int layer, int part) {
        return part == NORIA_NORM_FINAL ? 0 : 1 + 4 * layer + part - NORIA_NORM_ATTENTION;
    }

private:
    bool changes_rows() const {
        return table != nullptr || !embedding.none() || !norms.empty() || !tokens.ids.empty();
    }
};

class Adapter;
class Model;

// Each copies what it is given, in the model's element type, into the adapter. All throw std::bad_alloc.
void put_norm(Adapter& adapter, const Model& model, int layer, int part, const void* weight, const void* bias);
void put_table(Adapter& adapter, const Model& model, const void* table);
// Quantised where the model's own head is.
void put_head(Adapter& adapter, const Model& model, const void* matrix);
// a: [vocab, rank]. b: [hidden, rank], the scale in it. gain: [hidden], or none.
void put_embedding(Adapter& adapter, const Model& model, int rank, const void* a, const void* b, const float* gain);
// ids: [count], ascending. rows: [count, hidden]. in_head: the logits of these tokens come from them too.
void put_tokens(Adapter& adapter, const Model& model, int count, const int32_t* ids, const void* rows, bool in_head);

}  // namespace noria
