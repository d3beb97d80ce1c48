// Row-major single-precision matrix product: OpenBLAS where it was found, Eigen elsewhere. One thread.
#pragma once

namespace moeplan {

// c[rows][columns] = a[rows][inner] · b[inner][columns].
void Multiply(const float* a, const float* b, float* c, int rows, int inner, int columns);

}  // namespace moeplan
