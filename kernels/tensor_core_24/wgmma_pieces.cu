// wgmma_pieces: wgmma_three whose last wave, where few tiles are left for it, computes lower ones.
//
//   whole waves   192 rows                                a step of so many rows takes, by what
//   last wave     192, or 128 and 64, or three times 64   bounds it, 939, 664, 600 clocks
//
// 56 tiles are as much work for 132 SMs as 112 pieces of them, but a piece is done earlier. Unlike
// stream-K and clusters of two that share a tile's steps, nobody waits for anybody, there are no
// sums to pass on, and each element of C is the same sum as in a whole tile. What it costs is B,
// which arrives once for each piece.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "sparse_reader.cuh"
#include "store.cuh"
#include "tile_order.cuh"

// What a block computes: of a tile that begins at (row, column) so many blocks of 64 rows,
// `groups`, from block `first` on.
struct Piece {
    int row, column, first, groups;
};

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS>
__global__ void __maxnreg__(160) wgmma_pieces(  // registers: wgmma_three.cu
    const __grid_constant__ TensorMap a,        // as in sparse_stages.cuh, but in boxes of 64 rows
    const __grid_constant__ TensorMap e, const __grid_constant__ TensorMap b,
    const __grid_constant__ TensorMap c, int steps, int high, int wide,
    int band,    // k in steps of 64, a multiple of STAGES; TileOrder
    int whole,   // tiles that are not cut: of whole waves of gridDim.x, or all
    int groups,  // blocks of 64 rows of a piece of the others, if any: at most gridDim.x pieces
    float alpha)
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    static_assert(
        GROUPS == 3 && BLOCKS == 1, "the pool has 160 registers for each of three warpgroups");
    const Operands from{a, e, b, c};
    const TileOrder order{high, wide, band};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, Store<T, BUFFERS, false>>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int group = warpgroup();
    ring_begin<GROUPS, STAGES>(full, empty, 1, 4 * GROUPS, [&] {
        tma_prefetch(a), tma_prefetch(e), tma_prefetch(b), tma_prefetch(c);
    });

    // Number `tile` of the whole ones and, from `whole` on, of pieces; false: there is none.
    const auto find = [&](int tile, Piece& x) {
        x.first = 0, x.groups = GROUPS;
        if (tile >= whole) {
            const int pieces = (GROUPS + groups - 1) / groups, piece = tile - whole;
            tile = whole + piece / pieces;
            x.first = piece % pieces * groups;
            x.groups = min(groups, GROUPS - x.first);
        }
        if (tile < order.tiles()) order.find(tile, x.row, x.column);
        return tile < order.tiles();
    };

    Piece x;
    if (group == GROUPS) {
        give_registers<32>();
        if (threadIdx.x == GROUPS * 128) {
            Place<STAGES> at;
            for (int tile = blockIdx.x; find(tile, x); tile += gridDim.x) {
                const int row = x.row * S::M + x.first * 64;
#pragma unroll 1
                for (int step = 0; step < steps; ++step, at.next()) {
                    const int s = at.stage;
                    wait(&empty[s], at.parity ^ 1);
                    arrive_expect(&full[s], S::BYTES - (GROUPS - x.groups) * 4096);
#pragma unroll
                    for (int i = 0; i < GROUPS; ++i)
                        if (i < x.groups)
                            tma_load(
                                ring.a[s] + i * 4096, a, step * S::K / 2, row + i * 64, &full[s]);
                    tma_load(ring.e[s], e, step * S::K * 2, row / 64,
                             &full[s]);  // of three blocks, as always
#pragma unroll
                    for (int i = 0; i < S::CHUNKS; ++i)
                        tma_load(
                            ring.b[s] + i * 8192, b, x.column * N + i * 64, step * S::K, &full[s]);
                }
            }
        }
        return;
    }
    take_registers<160>();
    const Reader<S> reader(ring, group, empty);
    typename S::Accumulators acc;
    unsigned parity = 0;
    for (int tile = blockIdx.x; find(tile, x); tile += gridDim.x)
        if (group < x.groups) {
            reader.consume_rounds(acc, parity, steps, full);
            out[group].write(
                acc, c, x.row * S::M + (x.first + group) * 64, x.column * N, {alpha}, 1 + group);
        } else {  // hands back what others multiply
            for (int step = 0; step < steps; step += STAGES, parity ^= 1)
                for (int s = 0; s < STAGES; ++s) wait(&full[s], parity), reader.hand_back(s);
        }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
