// Turns the rows of a product to int8, where its matrix is: before it, or in its first item.
#pragma once

#include "model.h"
#include "workspace.h"

namespace noria {

class RowQuantiser {
public:
    // Both outlive it.
    RowQuantiser(const Model& model, Workspace& space) : model_(model), space_(space) {}

    // One phase: each row by one thread for all.
    void shared(Worker& worker, Product& product, int rows) const;
    // All rows, at most kPrivateRows, by this thread for itself.
    void own(const Worker& worker, Product& product, int rows) const;

private:
    void quantise(const Worker& worker, const Product& product, int row, uint8_t* rows) const;

    const Model& model_;
    Workspace& space_;
};

}  // namespace noria
