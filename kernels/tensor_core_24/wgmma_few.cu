// wgmma_few: few tokens, where all that counts is how fast A comes from DRAM.
//
//   A in the order of use: a stage is 4 KiB side by side for each 64 rows, not 64 bytes from each
//   tokens side by side with k, hence tiles of 8 to 64 columns, and nothing is padded or copied
//   a cluster shares the steps of a tile (split_k.cuh), so that all SMs read, and several blocks an
//   SM: while one adds, others read
//
// Registers stay where they are and are few, as the accumulators are: 80, or 128 for 64 columns,
// let the next block of the SM in.
//
// Template:  SPLITS  blocks of a cluster; the others as in sparse_stages.cuh and store.cuh; B and C
//                    by columns
#include "sparse_reader.cuh"
#include "split_k.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int SPLITS, int EXTRA>
__global__ void __launch_bounds__((GROUPS + 1) * 128,
                                  65536 / (N < 64 ? 80 : 128) / ((GROUPS + 1) * 128))
    wgmma_few(
        const unsigned char* __restrict__ packed,  // m'/64 x k'/64 pieces of 4 KiB, filled with 0s
        const __grid_constant__ TensorMap e,       // operands: sparse_stages.cuh
        const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps,
        int high, int wide, int band,  // k in steps of 64, at least SPLITS; TileOrder
        int kept,                      // 1: L2 is asked to keep A, 2: B
        float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n,
        int pitch,   // Scale: store.cuh
        int pieces)  // of A in a row of them, at least `steps`
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES, K_MAJOR>;
    const Operands from{e, e, b, c};  // A has no tensor map
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    multiply_tiles<Counted<S>, S, 1, 0, 0>(
        Packed<false>{from, packed, pieces, kept}, Share<SPLITS>({high, wide, band}, steps),
        Exchanged<SPLITS, Store<T, 1, EXTRA, true>, Scale>{c, scale});
}
