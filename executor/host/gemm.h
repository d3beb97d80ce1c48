// These products of row-major single-precision matrices run on one thread: OpenBLAS's where this was built with it,
// Eigen's elsewhere.
//
// OpenBLAS is opened at run time, so that only a process that multiplies loads it (decisions/0026).
#pragma once

#include <string>

#include "models/status.h"

namespace moeplan::executor {

// Opens what multiplies, once in a process; every product below requires it. kUnavailable, saying what to do, where
// OpenBLAS is not on this machine or the process may not have the memory that its first product takes. Any thread.
Status LoadGemm();

// Names the library that multiplies, its version and, of OpenBLAS, its settings and the kernels that it chose on this
// processor. Requires: LoadGemm.
std::string GemmName();

// c[rows][columns] = a[rows][inner] · b[inner][columns].
void Multiply(const float* a, const float* b, float* c, int rows, int inner, int columns);

// c[rows][columns] = add · c + a[rows][inner] · bᵀ, with b[columns][inner]; `add` is 0 or 1.
void MultiplyByTransposed(const float* a, const float* b, float add, float* c, int rows, int inner, int columns);

// c[rows][columns] += scale · aᵀ · b, with a[inner][rows] and b[inner][columns].
void AddTransposedProduct(float scale, const float* a, const float* b, float* c, int rows, int inner, int columns);

}  // namespace moeplan::executor
