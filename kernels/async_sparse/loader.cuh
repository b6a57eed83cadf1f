// What the blocks of units.cuh are told and ask for: the order of the tiles, a slot of the queue,
// and the loader of both rings.
//
// Template:  as in units.cuh
#pragma once

#include "step.cuh"

struct Tiles {
    const int4* rows;  // in the order of work: block row, its first block, the one past its last, -
    int high, panels;  // block rows; tiles of a block row
    int group;         // panels of a group

    __device__ __forceinline__ int count() const { return high * panels; }
    // Tile t: its place in `rows`, and its panel.
    __device__ __forceinline__ int2 find(int t) const
    {
        const int left = t / (high * group) * group, wide = min(group, panels - left),
                  rest = t - left * high;
        return make_int2(rest / wide, left + rest % wide);
    }
};

struct Slot {
    int row, panel, first, end;  // block row, -1: no more; panel; blocks
    int column[32];              // of the first 32 blocks
    __device__ __forceinline__ void set(const int4& from, int at)
    {
        row = from.x, panel = at, first = from.y, end = from.z;
    }
    __device__ __forceinline__ int split() const { return end; }
};

// The thread that asks for copies, and where it is in the two rings.
template <Dtype T, Major B, bool TALL, int N, int SHARED, int PRIVATE, int P>
struct Loader {
    static constexpr int B_BYTES = N * 128, LANDED = (PRIVATE + 1) / 2;
    static constexpr int SHARED_BYTES = TALL ? B_BYTES : A_BYTES,
                         PRIVATE_BYTES = TALL ? A_BYTES : B_BYTES;
    static constexpr int NOWHERE = 0x7fffff00;  // beyond every matrix: zeros

    const TensorMap &a, &b;
    unsigned char *shared_ring, *private_ring;
    Barrier *shared_full, *shared_empty, (*private_full)[LANDED], *private_empty;
    Place<SHARED> in_shared;
    Place<PRIVATE> in_private;
    Place<LANDED> landed;

    // A step's 64 rows of A, and its columns of B. `left`: blocks of the block row from `block` on.
    __device__ __forceinline__ void load_a(unsigned char* to, int block, int left, int x, int below,
                                           Barrier* full) const
    {
        constexpr int TALLER = TALL ? 128 : 64;
#pragma unroll
        for (int p = 0; p < P; ++p)
            tma_load(to + p * (A_BYTES / P), a, x,
                     p < left ? (block + p) * TALLER + below : NOWHERE, full);
    }
    __device__ __forceinline__ void load_b(unsigned char* to, int left, const int (&column)[P],
                                           int steps, int part, int at, Barrier* full) const
    {
#pragma unroll
        for (int p = 0; p < P; ++p)
            ::load_b<T, B, N, P>(
                to, b, p < left ? (column[p] * steps + part) * (K<T> / P) : NOWHERE, at, full, p);
    }

    // Asks for the steps of a block, or for the one of P blocks.
    __device__ __forceinline__ void steps(int block, int left, const int (&column)[P], int panel,
                                          int steps)
    {
#pragma unroll 1
        for (int part = 0; part < steps; ++part) {
            wait(&shared_empty[in_shared.stage], in_shared.parity ^ 1);
            Barrier* full = &shared_full[in_shared.stage];
            unsigned char* to = shared_ring + in_shared.stage * SHARED_BYTES;
            arrive_expect(full, SHARED_BYTES);
            if (TALL) load_b(to, left, column, steps, part, panel * N, full);
            else load_a(to, block, left, part * K<T>, 0, full);
            in_shared.next();
#pragma unroll
            for (int group = 0; group < 2; ++group) {
                wait(&private_empty[in_private.stage], in_private.parity ^ 1);
                full = &private_full[group][landed.stage];
                to = private_ring + in_private.stage * PRIVATE_BYTES;
                arrive_expect(full, PRIVATE_BYTES);
                if (TALL) load_a(to, block, left, part * K<T>, 64 * group, full);
                else load_b(to, left, column, steps, part, (2 * panel + group) * N, full);
                in_private.next();
            }
            landed.next();
        }
    }
};
