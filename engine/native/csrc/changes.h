// What an adapter makes of the products of the layers and of the head, packed: for each the A of all modules that
// read its rows, one after another, the B in blocks of the product's columns, gain and shift of each column.
#pragma once

#include <cstdint>

#include "api.h"
#include "kernels.h"

namespace noria {

// Products of a layer, and the head's, which is of none. Parts of a group read the same rows, and what they make
// lies side by side.
enum Group { kQkv = NORIA_GROUP_QKV, kO, kGateUp, kDown, kHead, kGroups = kHead };

class Adapter;
class Model;

// Each copies what it is given into the adapter, which has nothing in its place yet. Both throw std::bad_alloc.
void put_pairs(Adapter& adapter, const Model& model, int layer, Group group, const noria_pairs& pairs);
// float [out] each, or none.
void put_affine(Adapter& adapter, const Model& model, int layer, int part, const float* gain, const float* shift);

}  // namespace noria
