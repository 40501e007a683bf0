// The C interface of the library; engine/native/library.py declares the same structs for ctypes.
// Errors come as messages: functions that can fail return null, or fill `error` and return a value below 0.
#pragma once

#include <cstdint>

extern "C" {

struct noria_spec {
    int32_t float32;  // element type: 1 float, 0 bf16
    int32_t int8_weights;  // matrices are quantised when they are put
    int32_t int8_cache;    // keys and values are kept in int8
    int32_t level;    // instruction set: 1 AVX2, 2 AVX-512 with BF16 and VNNI, 3 AMX with BF16 beside that,
                      // 4 the same with its tiles in plain code
    int32_t threads;
    int32_t hidden, inner, layers, heads, kv_heads, head_dim, vocab;
    int32_t tied;     // the head is the embedding
    int32_t qkv_bias, o_bias, mlp_bias, qk_norm;
    int32_t layer_norm;      // norms are LayerNorms with biases; 0: RMSNorms
    int32_t norms_after;     // what attention and MLP make passes a norm before it joins the rows
    int32_t activation;      // of the MLP: 0 SiLU, 1 ReLU, 2 GELU, 3 GELU by tanh
    int32_t gated;           // the MLP's activation multiplies a second product
    int32_t experts;         // of each layer, in place of its MLP, `inner` wide each; 0: none
    int32_t experts_chosen;  // of them by a row
    int32_t shares_sum;      // the chosen ones' shares are divided by their sum
    int32_t learned_places;  // rows of the table of learned positions, 0: none
    int32_t first_place;     // row of position 0
    int32_t turned;          // numbers of a head that rotate, from its start
    int32_t rotations;       // ways of rotating
    int32_t groups;          // of layers: a block holds the keys and values of one group
    int32_t num_blocks;
    float eps;
    float norm_offset;       // added to every weight of a norm
    float embedding_scale;
    float query_scale;       // of scores
    float score_softcap;     // scores become cap * tanh(score / cap); 0: none
    float logit_softcap;
    const float* rotary;         // [rotations, turned / 2] inverse frequencies
    const float* rotary_scales;  // [rotations] of cos and sin
    const int32_t* rotation_of;  // [layers]
    const int32_t* windows;      // [layers], 0: none
    const int32_t* places;       // [layers] group, and place in a block; both of each layer side by side
};

// Parts of a layer, and of the model (layer -1).
enum noria_part {
    NORIA_Q, NORIA_K, NORIA_V, NORIA_O, NORIA_GATE, NORIA_UP, NORIA_DOWN,
    NORIA_ROUTER, NORIA_HEAD, NORIA_EMBEDDING, NORIA_PLACES,
    NORIA_NORM_ATTENTION, NORIA_NORM_AFTER_ATTENTION, NORIA_NORM_MLP, NORIA_NORM_AFTER_MLP,
    NORIA_NORM_Q, NORIA_NORM_K, NORIA_NORM_FINAL,
};

// Sequences of one step; arrays live until noria_step returns.
struct noria_batch {
    int32_t sequences;
    const int32_t* token_ids;    // of all sequences, one after another
    const int32_t* starts;       // [sequences] position of the first of them
    const int32_t* counts;       // [sequences]
    const int32_t* blocks;       // block tables, one after another: rows of one block of each group
    const int32_t* block_counts; // [sequences]
    const int32_t* slots;        // [sequences] adapter slot, 0: none
    const int32_t* samples;      // [sequences] whether its last token's logits are wanted
    float* logits;               // [sequences that sample, vocab]
    int32_t* best;               // [sequences that sample] token of the highest logit, the lowest of several;
                                 // -1: one of its logits is not finite
    const int32_t* score_firsts; // [sequences] of its tokens, the first that is scored, and how many are: none of
    const int32_t* score_counts; // them is sampled too
    const int32_t* targets;      // [scored tokens of all sequences] tokens whose probabilities are wanted
    int32_t top;                 // so many likeliest tokens as well
    float* logprobs;             // [scored tokens] natural-log probability; not a number: a logit is not finite
    int32_t* ranks;              // [scored tokens] 1 and how many tokens are likelier
    int32_t* top_ids;            // [scored tokens, top] best first, the lowest id first among equals
    float* top_logprobs;
};

// One row of which a token is drawn, or told what the logits say of it. Token ids are below vocab.
struct noria_draw {
    int32_t row;             // of the logits
    int32_t token;           // in: the one that is taken, -1: draw it; out: the token, -1: none was left
    int32_t top_k;           // 0: off
    int32_t top;             // likeliest tokens told beside the token's log probability; -1: none of both
    float temperature;       // 0: the likeliest
    float top_p;             // 1: off
    float least;             // of (logit - the highest) / temperature: by min_p
    float repetition, presence, frequency;  // penalties; 1, 0 and 0: off
    double uniform;          // in [0, 1)
    const uint32_t* allowed; // bit i % 32 of word i / 32 is token i's; null: all
    const int32_t* banned;
    const int32_t* bias_ids;
    const float* biases;
    const int32_t* history;  // prompt and output, for penalties
    int32_t banned_count, bias_count, history_count, prompt_count;
    // Out, as in noria_batch.
    float logprob;
    int32_t rank;
    int32_t top_ids[20];
    float top_logprobs[20];
};

// Kinds of a step's work; norms belong to the product that reads them, the residual sum to the one before.
enum noria_kind {
    NORIA_SPENT_EMBED, NORIA_SPENT_QKV, NORIA_SPENT_ATTENTION, NORIA_SPENT_O,
    NORIA_SPENT_GATE_UP, NORIA_SPENT_DOWN, NORIA_SPENT_HEAD,
};

// Products of a layer, and the parts that each is made of, in the order of noria_part. The head's is of layer -1.
enum noria_group {
    NORIA_GROUP_QKV, NORIA_GROUP_O, NORIA_GROUP_GATE_UP, NORIA_GROUP_DOWN, NORIA_GROUP_HEAD,
};

// Of each part of a group, for at most three parts; the arrays live until the call returns.
struct noria_pairs {
    int32_t ranks[3];  // 0: none
    const void* a[3];  // [rank, in]; parts with the same one share it
    const void* b[3];  // [out, rank], the scale in it
};

struct noria_model;
struct noria_adapter;

// The best level that can run here, 0: none. Asks the system for the use of AMX.
__attribute__((visibility("default"))) int32_t noria_level();
// How far products of a level lie from those of AVX-512, which has to be there, beside their size.
__attribute__((visibility("default"))) float noria_disagreement(int32_t level);
__attribute__((visibility("default"))) noria_model* noria_create(const noria_spec*, char* error, int32_t size);
__attribute__((visibility("default"))) void noria_destroy(noria_model*);
// Weights [n, k] row by row, or a vector [n] (k = 1), of the model's element type; copied.
__attribute__((visibility("default"))) void noria_put(noria_model*, int32_t layer, int32_t part, const void*);
__attribute__((visibility("default"))) void noria_put_bias(noria_model*, int32_t layer, int32_t part,
                                                           const void*);
// Gate, up or down of one expert.
__attribute__((visibility("default"))) void noria_put_expert(noria_model*, int32_t layer, int32_t expert,
                                                             int32_t part, const void*);
// 0, or -1: no memory for so many rows.
__attribute__((visibility("default"))) int32_t noria_step(noria_model*, const noria_batch*);
// Tokens of `count` rows of logits [rows, vocab], which stay as they are; each row is looked at alone. 0, or -1: no
// memory.
__attribute__((visibility("default"))) int32_t noria_draw_tokens(noria_model*, const float* logits, noria_draw*,
                                                                 int32_t count);
// From now on nanoseconds of each step are added to spent[noria_kind], which the caller owns; null: no more.
__attribute__((visibility("default"))) void noria_watch(noria_model*, int64_t* spent);
// Copies cache blocks in every layer of their group, in order; `pairs` are source and target of each of `count` copies.
__attribute__((visibility("default"))) void noria_copy(noria_model*, const int32_t* pairs, int32_t count);
// An adapter that changes nothing yet, for this model and for as long as it lives; null: no memory. It is made
// and filled by one thread, also while others run steps, and not changed any more once it was bound.
__attribute__((visibility("default"))) noria_adapter* noria_adapter_create(const noria_model*);
// What it is filled with is of the model's element type but for gains and shifts, and copied. These return 0, or
// -1: no memory.
// All deltas of one product, once for each.
__attribute__((visibility("default"))) int32_t noria_adapter_pairs(noria_adapter*, int32_t layer, int32_t group,
                                                                   const noria_pairs*);
// What is done to the outputs of a part before its delta is added: float [out] each, or none.
__attribute__((visibility("default"))) int32_t noria_adapter_affine(noria_adapter*, int32_t layer, int32_t part,
                                                                    const float* gain, const float* shift);
// In place of a norm's weights and of its biases, none for an RMSNorm. Layer -1: of none.
__attribute__((visibility("default"))) int32_t noria_adapter_norm(noria_adapter*, int32_t layer, int32_t part,
                                                                  const void* weight, const void* bias);
// In place of the token table, for what goes in alone: [vocab, hidden].
__attribute__((visibility("default"))) int32_t noria_adapter_table(noria_adapter*, const void* table);
// In place of the head's matrix: [vocab, hidden].
__attribute__((visibility("default"))) int32_t noria_adapter_head(noria_adapter*, const void* matrix);
// a [vocab, rank] and B [hidden, rank], scale already in B; gain float [hidden] or none.
__attribute__((visibility("default"))) int32_t noria_adapter_embedding(noria_adapter*, int32_t rank,
                                                                       const void* a, const void* b,
                                                                       const float* gain);
// Rows [count, hidden] of single tokens in the token table, and in the head where it is the same; ids ascend.
__attribute__((visibility("default"))) int32_t noria_adapter_tokens(noria_adapter*, int32_t count,
                                                                    const int32_t* ids, const void* rows,
                                                                    int32_t in_head);
// What all of it takes.
__attribute__((visibility("default"))) int64_t noria_adapter_bytes(const noria_adapter*);
// It has no slot any more; the model may be gone.
__attribute__((visibility("default"))) void noria_adapter_destroy(noria_adapter*);
// Between two steps. An adapter may have several slots; the caller keeps it while it has one.
__attribute__((visibility("default"))) void noria_bind(noria_model*, int32_t slot, const noria_adapter*);
__attribute__((visibility("default"))) void noria_unbind(noria_model*, int32_t slot);
}
