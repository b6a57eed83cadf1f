// C (m x n) = A (m x k) . B (k x n), dense, float32, one thread: the sequential CPU baseline of
// Zeng, "GPU Accelerated Structured Sparsity Matrix Multiplication", section 4.3.
//
//   a  column-major, m x k    in the loop over p both are read with a stride: m floats
//   b  row-major, k x n       in A and n floats in B
//   c  row-major, m x n
//
// The order of the loops and the layouts are the report's. The pointers are not `restrict`: a
// compiler that knew that C overlaps neither A nor B might exchange the loops, and that is another
// program, many times faster.
#include <stddef.h>

void cpu_loop(const float *a, const float *b, float *c, size_t m, size_t n, size_t k) {
  for (size_t i = 0; i < m; i++) {
    for (size_t j = 0; j < n; j++) {
      float sum = 0.0f;
      for (size_t p = 0; p < k; p++) {
        sum += a[i + p * m] * b[p * n + j];
      }
      c[i * n + j] = sum;
    }
  }
}
