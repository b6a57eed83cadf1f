// unit_ring: blocks that stay and claim tiles; rings of units, each filled and freed on its own,
// and stores that overlap (units.cuh).
//
// The order of the tiles (Tiles): groups of panels, whose B stays in L2; in a group the longest
// block rows first, each with all its panels. The next tile is claimed from a counter when one is
// begun, so a block is late by a tile at most, and the last tiles are short ones.
//
// Template:  as in units.cuh
#include "units.cuh"

struct Ungated {
    static constexpr bool GATED = false;
    using Slot = ::Slot;
};

template <Dtype T, Major B, bool COLUMN, bool TALL, int N, int SHARED, int PRIVATE, int BUFFERS,
          int P>
__global__ void __launch_bounds__(384, 1)
    unit_ring(const __grid_constant__ TensorMap
                  a,  // values: rows of b_col, b_row for each block; boxes of 64 x K / P
              const __grid_constant__ TensorMap
                  b,  // K_MAJOR: n x k, boxes of N x K / P; MN_MAJOR: k x n, boxes of K / P x 64
              const __grid_constant__ TensorMap c,  // m x n or, COLUMN, n x m; boxes of output.cuh
              const int4* rows, const int* col_idx, unsigned* counter, int high, int panels,
              int group, int steps)
{
    multiply_tiles<Ungated, T, B, COLUMN, TALL, N, SHARED, PRIVATE, BUFFERS, P>(
        a, b, c, rows, col_idx, counter, high, panels, group, steps);
}
