// windows: windows of 8 to 64 rows in exchanged roles, C^T = B^T A^T: rows of B are wgmma's left
// operand, through registers.
//
//                       W rows of a window
//                      ┌─────┐
//                      │ A^T │ 8 k: a slice    wgmma's rows are 64 columns of C, and N is as low as
//            8 k       └─────┘                 8: a low window names fewer columns that most of its
//                                              rows do not have.
//          ┌─────┐     ┌─────┐
//   64 of  │ B^T │     │ C^T │    warpgroups 0 ..    wait full ── load fragments, wgmma ──► empty
//   n      └─────┘     └─────┘    4 warps behind     wait empty ── gather rows of B, ask for values
//                                                      ──► full
//
// For 32-bit types wgmma reads shared memory K-major only, but gathered rows of B are contiguous
// along n. The rows of an instruction are ours to name: lane 4 g + t of a warp reads columns 4 g to
// 4 g + 3 of its 32 of gathered row t at once, which are (g, t), (g + 8, t) of two blocks of 64 x
// 8; a pitch of 8 floats more keeps that free of bank conflicts, and what a lane has of a row of C
// are 4 neighbours.
//
// A step is 4 slices at most: producer warp i gathers the 8 rows of slice i, by cp.async. Padding
// is zeros, and slices behind the end of a window are neither gathered nor multiplied. Values are
// stored by slices: W lines of 32 bytes, 32-byte swizzle.
//
// EXACT, 3xTF32: x = big + small, both rounded to TF32; small A times big B, big A times small B
// and big times big. What tensor cores add they cut off, so every two or four slices begin with
// zero and are added to the sums on CUDA cores. Of low windows big B is multiplied by both parts of
// A at once, which lie one below the other: wgmma takes hardly longer for 2 W columns.
//
// Tasks of a cut window add to C as they are done, which three of them do in another order each
// time; given Slots, they are added up in one order (in_order.cuh), and nobody has to clear C.
//
// Template:  W       rows of a window: 8, 16, 32 or 64
//            GROUPS  warpgroups that multiply, 128 columns each: 1 (two blocks then share an SM) or
//                    2
//            STAGES  of the ring
//            EXACT   whether float32 operands are multiplied in three products
//            InOrder none, or the types of what Slots has
#include "windows_tf32.cuh"

template <int W, int GROUPS, int STAGES, bool EXACT, class... InOrder>
__global__ void __launch_bounds__(128 * GROUPS + 128, 3 - GROUPS) windows(
    const float* __restrict__ b, int pitch,  // k rows, `pitch` floats apart, a multiple of 4
    const int4* __restrict__ task, int tasks,
    int panels,  // cut_windows.cuh; tiles: all tasks of a panel of columns, then the next
    const int* __restrict__ col_idx,
    const unsigned char* __restrict__ values,  // Wcsr's, padded to 8; by slices
    const int* __restrict__ order, float* __restrict__ c, int m,
    int width,            // row_of; m rows of `width` floats, a multiple of 4
    InOrder... in_order)  // nothing, or what Slots has: a panel's counts for 4 warps of each group
{
    static_assert(W == 8 || W == 16 || W == 32 || W == 64, "windows have 8, 16, 32 or 64 rows");
    static_assert(GROUPS == 1 || GROUPS == 2, "one or two warpgroups multiply");
    constexpr int SLICE = W * 32 * (1 + EXACT);  // bytes: the big parts, then the small ones
    using S = Shared<float, SLICE, GROUPS, STAGES>;
    constexpr int PITCH = S::PITCH, SLICES = STEP / S::ROWS,
                  PART = EXACT && W > 16 ? 2 : SLICES;  // slices at once
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
        produce<float, SLICE, GROUPS, STAGES>(
            tiles, shared, full, empty, b, pitch, col_idx, values, warp, lane);
        return;
    }

    take_registers<GROUPS == 1 ? 200 : 224>();
    const int mine = 128 * group + 32 * warp + 4 * g;  // first of this lane's 4 columns of the tile
    Sums<W, GROUPS, EXACT> sums;
    Place<STAGES> place;
    for (; tiles.more(); tiles.next()) {
        Tile it = tiles.get();
        if (EXACT || it.first == it.end) sums.clear();
        for (int at = it.first; at < it.end; at += 8 * SLICES) {
            wait(&full[place.stage], place.parity);
            const float* gathered = shared.gathered[place.stage] + t * PITCH + mine;
            const unsigned char* slices = shared.values[place.stage];
            int slice = 0;
            const int live = min(SLICES, (it.end - at) / 8);
#pragma unroll 1
            for (; slice + PART <= live; slice += PART)
                sums.template multiply<PART>(
                    gathered + 8 * slice * PITCH, slices + slice * SLICE, at > it.first);
#pragma unroll 1
            for (; slice < live; ++slice)
                sums.template multiply<1>(gathered + 8 * slice * PITCH, slices + slice * SLICE,
                                          at > it.first || slice > 0);
            hand_back_warp(&empty[place.stage]);
            place.next();
        }
        settle(sums.acc);
        const int column = it.panel * S::M + mine;
        if constexpr (sizeof...(InOrder) > 0) {
            const Slots to{in_order...};
            const int strip = (it.panel * GROUPS + group) * 4 + warp;  // of 32 columns
            bool whole = true;
            if (it.cut >= 0) {
                if constexpr (EXACT)
                    whole = add_tile_in_order<W>(sums.sum, to, it, strip, column, width, t);
                else whole = add_tile_in_order<W>(sums.acc, to, it, strip, column, width, t);
            }
            if (!whole) continue;
            it.cut = -1;
        }
        if (column >= width) continue;
        if constexpr (EXACT) put_tile<W>(sums.sum, order, c, m, width, it, column, t);
        else put_tile<W>(sums.acc, order, c, m, width, it, column, t);
    }
}
