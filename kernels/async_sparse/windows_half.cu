// windows_half: windows.cu with B and C in 16 bits, on tensor cores twice as fast, half the bytes
// gathered.
//
//                        W rows of a window
//                       ┌─────┐
//                       │ A^T │ 16 k: a slice    a line of its values is 32 bytes, as in TF32
//           16 k        └─────┘
//           ┌─────┐     ┌─────┐
//   64 of   │ B^T │     │ C^T │    four blocks of 64 columns a warpgroup, 512 bytes of a row of B
//   n       └─────┘     └─────┘
//
// wgmma could read gathered rows where they lie, but would leave neighbouring columns of C in
// different lanes. Through registers the rows of an instruction are ours to name: lane 4 g + t
// reads columns 8 g to 8 g + 7 of its warp's 64, of gathered rows 2 t, 2 t + 1, 2 t + 8, 2 t + 9;
// columns 2 i and 2 i + 1 are (g, t) and (g + 8, t) of block i, two rows of B in a register. What a
// lane has of a row of C are 8 neighbours, 16 bytes. A pitch of 16 bytes more keeps banks apart.
//
// Tasks of a cut window are added up in one order, in float32 (in_order.cuh), and rounded once.
//
// Template:  T       BF16 or F16
//            W       rows of a window: 8, 16, 32 or 64
//            GROUPS  warpgroups that multiply, 256 columns each: 1 (two blocks then share an SM) or
//                    2
//            STAGES  of the ring
#include "wgmma_registers.cuh"
#include "windows.cuh"

// What a warpgroup adds up: 4 x 64 columns of C of a window's W rows.
template <Dtype T, int W, int PITCH>
struct Sums {
    float acc[4][W / 2];

    // Multiplies COUNT slices; gathered: this lane's of B; values: theirs; add: to what acc holds.
    template <int COUNT>
    __device__ __forceinline__ void
    multiply(const unsigned short* gathered, const unsigned char* values, bool add)
    {
        uint4 part[COUNT][4];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const auto row = [&](int r) {
                return *reinterpret_cast<const uint4*>(gathered + (16 * k + r) * PITCH);
            };
            const uint4 x = row(0), y = row(1), z = row(8), w = row(9);
            part[k][0] = pairs(x.x, y.x, z.x, w.x), part[k][1] = pairs(x.y, y.y, z.y, w.y);
            part[k][2] = pairs(x.z, y.z, z.z, w.z), part[k][3] = pairs(x.w, y.w, z.w, w.w);
        }
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) pin(part[k][i]);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                WgmmaRegisters<W, T>::dense(
                    acc[i], part[k][i], k_major<32>(values + k * W * 32), k > 0 || add);
        wgmma_commit();
        wgmma_wait<0>();  // meanwhile other warpgroups' instructions run
    }

    // Two columns of rows x and y, z and w: as an instruction wants them of a lane.
    static __device__ __forceinline__ uint4 pairs(unsigned x, unsigned y, unsigned z, unsigned w)
    {
        return {__byte_perm(x, y, 0x5410), __byte_perm(x, y, 0x7632), __byte_perm(z, w, 0x5410),
                __byte_perm(z, w, 0x7632)};
    }

    // Columns 4 q to 4 q + 3 of this lane's 8, of its j-th row.
    __device__ __forceinline__ vec<4> get(int j, int q) const
    {
        const int d = j / 2 * 4 + j % 2;
        return {{acc[2 * q][d], acc[2 * q][d + 2], acc[2 * q + 1][d], acc[2 * q + 1][d + 2]}};
    }
};

template <Dtype T, int W, int GROUPS, int STAGES>
__global__ void __launch_bounds__(128 * GROUPS + 128, 3 - GROUPS) windows_half(
    const unsigned short* __restrict__ b, int pitch,  // k rows of `pitch` elements, a multiple of 8
    const int4* __restrict__ task, int tasks,
    int panels,  // cut_windows.cuh; tiles: all tasks of a panel of columns, then the next
    const int* __restrict__ col_idx,
    const unsigned char* __restrict__ values,  // Wcsr's, padded to 16; by slices
    const int* __restrict__ order, unsigned short* __restrict__ c, int m,
    int width,  // row_of; m rows of `width` elements, a multiple of 8
    // what Slots has: a panel's counts for 4 warps of each group, PIECES of each
    const Parts* __restrict__ parts, unsigned* __restrict__ counts, int slots, float* sums_of_parts)
{
    static_assert(W == 8 || W == 16 || W == 32 || W == 64, "windows have 8, 16, 32 or 64 rows");
    static_assert(GROUPS == 1 || GROUPS == 2, "one or two warpgroups multiply");
    using S = Shared<unsigned short, W * 32, GROUPS, STAGES>;
    // A lane has columns of W / 4 rows; of a cut window they are added up in pieces, so that the
    // parts of others fit into registers beside its own.
    constexpr int PIECES = W <= 16 ? 1 : W / 16, ROWS = W / 4 / PIECES;
    extern __shared__ __align__(1024) unsigned char dynamic[];
    auto& shared = *reinterpret_cast<S*>(dynamic);
    __shared__ Barrier full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) ring_init<STAGES>(full, empty, 128 + 1, 4 * GROUPS);
    __syncthreads();
    const int group =
        __shfl_sync(~0u, threadIdx.x / 128, 0);  // the compiler sees that a warp's threads agree
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    Tasks tiles(task, tasks, panels);

    if (group == GROUPS) {
        give_registers<56>();
        produce<unsigned short, W * 32, GROUPS, STAGES>(
            tiles, shared, full, empty, b, pitch, col_idx, values, warp, lane);
        return;
    }

    take_registers<GROUPS == 1 ? 200 : 224>();
    const int mine = 256 * group + 64 * warp + 8 * g;  // first of this lane's 8 columns of the tile
    Sums<T, W, S::PITCH> sums;
    Place<STAGES> place;
    for (; tiles.more(); tiles.next()) {
        Tile it = tiles.get();
        if (it.first == it.end)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < W / 2; ++j) sums.acc[i][j] = 0.f;
        for (int at = it.first; at < it.end; at += STEP) {
            wait(&full[place.stage], place.parity);
            const unsigned short* gathered = shared.gathered[place.stage] + 2 * t * S::PITCH + mine;
            if (it.end - at > 16)
                sums.template multiply<2>(gathered, shared.values[place.stage], at > it.first);
            else sums.template multiply<1>(gathered, shared.values[place.stage], at > it.first);
            hand_back_warp(&empty[place.stage]);
            place.next();
        }
        settle(sums.acc);
        const int column = it.panel * S::M + mine;
        const auto inside = [&](int j) {  // the window, of the lane's j-th row
            return j / 2 * 8 + 2 * t + j % 2;
        };
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            const int first = piece * ROWS;
            vec<4> x[2 * ROWS];
#pragma unroll
            for (int i = 0; i < 2 * ROWS; ++i) x[i] = sums.get(first + i / 2, i % 2);
            if (it.cut >= 0) {
                const int strip = ((it.panel * GROUPS + group) * 4 + warp) * PIECES + piece;
                const bool whole = add_in_order<W == 8    ? 4
                                                : W == 64 ? 1
                                                          : 2>(
                    x, parts + it.cut, it.first, counts + (size_t)strip * slots,
                    sums_of_parts + column, (size_t)W * width,
                    [&](int i) { return (unsigned)inside(first + i / 2) * width + i % 2 * 4; },
                    [&](int) { return column < width; });
                if (!whole) continue;
            }
            if (column >= width) continue;
#pragma unroll
            for (int j = 0; j < ROWS; ++j) {
                const int p = it.window * W + inside(first + j);
                if (p >= m) continue;
                const vec<4>&y = x[2 * j], &z = x[2 * j + 1];
                *reinterpret_cast<uint4*>(c + (size_t)row_of(order, p) * width + column) = {
                    pack<T>(y.at[0], y.at[1]), pack<T>(y.at[2], y.at[3]), pack<T>(z.at[0], z.at[1]),
                    pack<T>(z.at[2], z.at[3])};
            }
        }
    }
}
