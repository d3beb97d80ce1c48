// Row-major single-precision matrix products: OpenBLAS where it was found, Eigen elsewhere. One thread.
#pragma once

namespace moeplan {

// c[rows][columns] = a[rows][inner] · b[inner][columns].
void Multiply(const float* a, const float* b, float* c, int rows, int inner, int columns);

// c[rows][columns] = add · c + a[rows][inner] · bᵀ, with b[columns][inner]; `add` is 0 or 1.
void MultiplyByTransposed(const float* a, const float* b, float add, float* c, int rows, int inner, int columns);

// c[rows][columns] += scale · aᵀ · b, with a[inner][rows] and b[inner][columns].
void AddTransposedProduct(float scale, const float* a, const float* b, float* c, int rows, int inner, int columns);

}  // namespace moeplan
