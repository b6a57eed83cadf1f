// wgmma_last_wave: wgmma_lean whose last wave, where it is at most half full, is cut along k by
// clusters of two.
//
//   whole waves    block 0: tile 0, 132, ...      block 1: tile 1, 133, ...       each for itself
//   last wave      tile w:  block 0: first half of the steps ─┐
//                           block 1: second half ─────────────┴─ each adds the squares that it
//                                                                stores, from the other's shared
//                                                                memory
//
// Unlike stream-K, blocks stand at the same k while whole waves last, hence read what their
// neighbours read, and there is no workspace. The order of additions is fixed, so results repeat
// bit by bit.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "roles.cuh"
#include "sparse_reader.cuh"

// Tiles of whole waves, then half of the steps of a tile of the last one.
struct WavesAndHalf {
    TileOrder order;
    int steps, whole;
    template <class Work>
    __device__ __forceinline__ void each(Work work) const
    {
        for (int tile = blockIdx.x; tile < whole; tile += gridDim.x) {
            Part part{0, 0, 0, steps};
            order.find(tile, part.row, part.column);
            work(part);
        }
        const int rank = blockIdx.x % 2, last = whole + blockIdx.x / 2;
        if (last < order.tiles()) {
            Part part{0, 0, steps * rank / 2, steps * (rank + 1) / 2, true};
            order.find(last, part.row, part.column);
            work(part);
        }
    }
};

// Each block of two adds the squares that it stores, from the other's shared memory.
template <class Out>
struct SquaresAndHalves : Squares<Out, Scale> {
    template <class S>
    __device__ __forceinline__ void
    store(unsigned char* shared, typename S::Accumulators& acc, int group, const Part& part) const
    {
        if (!part.cut) return Squares<Out, Scale>::template store<S>(shared, acc, group, part);
        constexpr int SQUARES = S::BLOCKS * S::CHUNKS;
        static_assert(SQUARES % 2 == 0 && sizeof(S) >= S::M * S::N * 2,
                      "the ring must have room for half of the sums");
        Out* out = after<S, Out>(shared);
        const int rank = blockIdx.x % 2;
        named_barrier(
            2 + S::GROUPS,
            128 * S::GROUPS);  // every warpgroup is done with the ring, whose memory now takes sums
        float4* sums =
            reinterpret_cast<float4*>(shared) + group * SQUARES * 4 * 128 + threadIdx.x % 128;
#pragma unroll
        for (int i = 0; i < SQUARES * 8;
             ++i) {  // squares 0, 2, ... are block 0's, the others block 1's
            const float* x = acc[0] + 4 * i;
            if (i / 8 % 2 != rank)
                sums[(i / 16 * 8 + i % 8) * 128] = make_float4(x[0], x[1], x[2], x[3]);
        }
        cluster_barrier();
#pragma unroll
        for (int square = 0; square < SQUARES; ++square) {
            if (square % 2 != rank) continue;
            float* mine = acc[0] + 32 * square;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float4 x = load_remote(sums + (square / 2 * 8 + i) * 128, rank ^ 1);
                mine[4 * i] += x.x, mine[4 * i + 1] += x.y, mine[4 * i + 2] += x.z,
                    mine[4 * i + 3] += x.w;
            }
            out[group].write_square(
                mine, this->c, part.row * S::M + (group * S::BLOCKS + square / S::CHUNKS) * 64,
                part.column * S::N + square % S::CHUNKS * 64, this->scale, 1 + group);
        }
        cluster_barrier();  // nobody leaves while another reads its shared memory
    }
};

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, int EXTRA,
          Major B = MN_MAJOR, bool COLUMN = false, bool PACKED = false>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_last_wave(
    const __grid_constant__ TensorMap a,
    const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps, int high,
    int wide, int band,  // k in steps of 64; TileOrder
    int whole,           // tiles that are not cut: of whole waves, or all; with steps = 1 all
    int kept,            // 1: L2 is asked to keep A, 2: B, 0: neither
    float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n,
    int pitch,   // Scale: store.cuh
    int pieces)  // Operands
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES, B, PACKED>;
    const Operands from{a, e, b, c, pieces};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    using Out = Store<T, BUFFERS, EXTRA, COLUMN>;
    multiply_tiles<Counted<S>, S>(Tiled{from, kept}, WavesAndHalf{{high, wide, band}, steps, whole},
                                  SquaresAndHalves<Out>{{c, scale}});
}
