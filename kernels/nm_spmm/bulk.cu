// bulk: the copy engine fetches whole steps; no thread computes an address for a copy, or waits at
// a block's barrier.
//
//   cp.async      every thread, every 16 bytes of A and B: an address, a predicate, an instruction;
//                 __syncthreads
//   copy engine   one thread, one instruction for a box of A^T, one for B's part, one for the
//                 indices; mbarriers
//
// B and its indices were laid out offline so that a block's part of a step lies side by side
// (packing.py, tiled).
//
// Template:  BM, BN, TM, TN, SLOT          see fragments.cuh
//            ROWS, DEPTH, STAGES           see ring.cuh, and so AHEAD and UNROLL
//            BLOCKS                        that an SM shall hold at once
//            ALIGNED                       m is a multiple of 4

#include "ring.cuh"
#include "sums.cuh"

template <int BM, int BN, int TM, int TN, int SLOT, int ROWS, int DEPTH, int STAGES, bool AHEAD,
          int UNROLL, int BLOCKS, bool ALIGNED>
__global__ void __launch_bounds__(BM* BN / TM / TN, BLOCKS)
    bulk(int m, int n, int steps,              // sizes of C; steps of DEPTH rows of A^T
         float alpha,                          // C = alpha A B; 1
         const __grid_constant__ TensorMap A,  // A^T: k x m, boxes of DEPTH x BM
         const float* __restrict__ val,        // gridDim.y x steps x ROWS x BN
         const int* __restrict__ index,  // gridDim.y x steps x BN/SLOT x ROWS: rows within the step
         float* __restrict__ C)          // m x n, column-major
{
    using T = FragmentTile<BM, BN, TM, TN, SLOT>;
    using R = Ring<T, ROWS, DEPTH, STAGES, AHEAD, UNROLL>;
    extern __shared__ __align__(128) float stages[];
    __shared__ Barrier barriers[2 * STAGES];
    const size_t block = (size_t)blockIdx.y * steps;
    const Panel<R> panel{
        (int)blockIdx.x * BM, 0, val + block * R::B_FLOATS, index + block * R::INDICES};

    const T t;
    R ring(stages, barriers, A, t);
    ring.start(panel, steps);
    float acc[TN][TM] = {};
    ring.multiply(acc, panel, 0, steps, steps);
    scale<T>(acc, alpha);
    store<ALIGNED>(C, acc, t, m, n, blockIdx.x, blockIdx.y);
}
