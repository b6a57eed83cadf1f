// What the Hopper kernels share: stages of operands in shared memory, how one is filled and how it
// is multiplied.
//
//   A   M rows x 32 values   compressed columns k/2 to k/2 + 31: 64 bytes a row, 64-byte swizzle
//   B   64 rows x N columns  rows k to k + 63, in chunks of 64 columns: 128 bytes a row, 128-byte
//                            swizzle
//   E   M/64 x 128 words     metadata: word 32 w + l of a block of 64 rows is for lane l of warp w
//                            of its warpgroup; selector 0 is for columns k to k + 31, selector 1
//                            for k + 32 to k + 63
//
//             N            multiplied as 2 x BLOCKS wgmma.sp.m64nNk32 by each of GROUPS warpgroups:
//         ┌─────── ─ ─┐
//    K=64 │ B   chunk │    warpgroup 0   block 0   rows 0 to 63 of the tile
//         └─────── ─ ─┘                  block 1   rows 64 to 127
//   ┌──┐  ┌───────────┐    warpgroup 1   block 0   ...
// M │A │  │     C     │
//   └──┘  └───────────┘
//    32 + E
//
// The barriers of such a ring and the loop over its stages are consume.cuh, in which order tiles
// follow is tile_order.cuh.
//
// Template:  T       BF16 or F16
//            GROUPS  warpgroups that multiply
//            BLOCKS  blocks of 64 rows of each; M = 64 * GROUPS * BLOCKS
//            N       columns of the tile of C: 64, 128, 192 or 256
//            STAGES  stages of the ring
#pragma once

#include "consume.cuh"
#include "operands.cuh"

//            PACKED  whether A lies in the order of use, `wgmma.pack_values`: in a tensor map of
//                    lines of 256 bytes, 16 a piece
template <Dtype T, int GROUPS_, int BLOCKS_, int N_, int STAGES_, Major B_ = MN_MAJOR,
          bool PACKED = false>
struct Stages {
    static constexpr int GROUPS = GROUPS_, BLOCKS = BLOCKS_, N = N_, STAGES = STAGES_;
    static constexpr Major B = B_;
    static constexpr int M = 64 * GROUPS * BLOCKS, K = 64, CHUNKS = N / 64;
    static constexpr int A_BYTES = M * 64, B_BYTES = N * 128, E_BYTES = M * 8,
                         BYTES = A_BYTES + B_BYTES + E_BYTES;
    static_assert(N <= 256 && N % (B == K_MAJOR ? 8 : 64) == 0,
                  "a tile has up to 256 columns, in chunks of B");
    using Accumulators = float[BLOCKS][N / 2];

    unsigned char b[STAGES][B_BYTES];  // first, because it is swizzled over 1024 bytes
    unsigned char a[STAGES][A_BYTES];
    unsigned e[STAGES][E_BYTES / 4];

    // One thread asks for stage s: columns k to k + 63 of A, for the tile of C that begins at (row,
    // column).
    __device__ __forceinline__ void load(const Operands& from, int s, int row, int column, int k,
                                         Barrier* full)
    {
        arrive_expect(full, BYTES);
        if constexpr (PACKED)
#pragma unroll
            for (int i = 0; i < M / 64; ++i)
                tma_load(
                    a[s] + 4096 * i, from.a, 0, 16 * ((row / 64 + i) * from.pieces + k / K), full);
        else tma_load(a[s], from.a, k / 2, row, full);
        tma_load(e[s], from.e, 2 * k, row / 64, full);
        if constexpr (B == K_MAJOR) tma_load(b[s], from.b, k, column, full);
        else
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c)
                tma_load(b[s] + c * 8192, from.b, column + 64 * c, k, full);
    }
    __device__ __forceinline__ void load(const Operands& from, int s, int row, int column, int k,
                                         Barrier* full, const Hints& hints)
    {
        if (!hints.given) return load(from, s, row, column, k, full);
        arrive_expect(full, BYTES);
        load_a(from, s, row, k, full, hints);
        load_b(from, s, column, k, full, hints);
    }
    __device__ __forceinline__ void load_a(const Operands& from, int s, int row, int k,
                                           Barrier* full, const Hints& hints)
    {
        if constexpr (PACKED)
#pragma unroll
            for (int i = 0; i < M / 64; ++i)
                tma_load(a[s] + 4096 * i, from.a, 0, 16 * ((row / 64 + i) * from.pieces + k / K),
                         full, hints.a);
        else tma_load(a[s], from.a, k / 2, row, full, hints.a);
        tma_load(e[s], from.e, 2 * k, row / 64, full, hints.a);
    }
    __device__ __forceinline__ void load_b(const Operands& from, int s, int column, int k,
                                           Barrier* full, const Hints& hints)
    {
        if constexpr (B == K_MAJOR) tma_load(b[s], from.b, k, column, full, hints.b);
        else
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c)
                tma_load(b[s] + c * 8192, from.b, column + 64 * c, k, full, hints.b);
    }

    // The same from A in the order of use, `wgmma.pack_values`: 4 KiB for 64 rows and 64 columns,
    // swizzled already.
    __device__ __forceinline__ void
    load_packed(const Operands& from, const unsigned char* packed, int steps, int s, int row,
                int column, int k, Barrier* full, const Hints& hints)
    {
        arrive_expect(full, BYTES);
#pragma unroll
        for (int i = 0; i < M / 64; ++i)
            bulk_load(a[s] + 4096 * i, packed + ((size_t)(row / 64 + i) * steps + k / K) * 4096,
                      4096, full, hints.a);
        tma_load(e[s], from.e, 2 * k, row / 64, full, hints.a);
        load_b(from, s, column, k, full, hints);
    }

    // The same by one of SHARE blocks of a cluster: its own A, and its share of the rows, or
    // K_MAJOR the columns, of B for all.
    template <int SHARE>
    __device__ __forceinline__ void load_share(const Operands& from, int s, int row, int column,
                                               int k, Barrier* full, const Hints& hints, int rank)
    {
        constexpr unsigned short ALL = (1 << SHARE) - 1;
        arrive_expect(full, BYTES);
        load_a(from, s, row, k, full, hints);
        if constexpr (B == K_MAJOR)
            tma_multicast(b[s] + rank * (B_BYTES / SHARE), from.b, k, column + N / SHARE * rank,
                          full, ALL, hints.b);
        else
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c)
                tma_multicast(b[s] + c * 8192 + rank * (8192 / SHARE), from.b, column + 64 * c,
                              k + K / SHARE * rank, full, ALL, hints.b);
    }

    // Descriptors of the first 32 of B's rows of a stage, and of the others.
    static __device__ __forceinline__ unsigned long long upper(const unsigned char* b)
    {
        if constexpr (B == K_MAJOR) return k_major<128>(b);
        else return wgmma_matrix(b, 8192, 1024);
    }
    static constexpr int LOWER = B == K_MAJOR ? 64 : 4096;  // bytes from one to the other

    // A warpgroup's asynchronous share of stage s. add: whether to add to the accumulators or to
    // begin with zero. word: takes the metadata, and is read until the wgmma are done: the next
    // stage needs another.
    __device__ __forceinline__ void
    multiply(Accumulators& acc, unsigned (&word)[BLOCKS], int s, int group, bool add) const
    {
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i)
            word[i] = e[s][(group * BLOCKS + i) * 128 + threadIdx.x % 128];
        const unsigned char* mine = a[s] + group * BLOCKS * 4096;
        const unsigned long long first = upper(b[s]), second = upper(b[s] + LOWER);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i)
            Wgmma<N, T, B>::template sparse<0>(
                acc[i], k_major<64>(mine + i * 4096), first, word[i], add);
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i)
            Wgmma<N, T, B>::template sparse<1>(
                acc[i], k_major<64>(mine + i * 4096 + 32), second, word[i], 1);
        wgmma_commit();
    }

    // A warpgroup multiplies `steps` stages from the ring, at least one, and hands each back,
    // hand_back(stage).
    template <class HandBack>
    __device__ __forceinline__ void consume(Accumulators& acc, Place<STAGES>& at, int steps,
                                            int group, Barrier* full, HandBack hand_back) const
    {
        unsigned word[2][BLOCKS];
        ::consume<2, true>(
            acc, at, 0, steps, full,
            [&](int set, int stage, bool add) { multiply(acc, word[set], stage, group, add); },
            hand_back);
    }
    __device__ __forceinline__ void consume(Accumulators& acc, Place<STAGES>& at, int steps,
                                            int group, Barrier* full, Barrier* empty) const
    {
        consume(acc, at, steps, group, full, [=](int stage) { hand_back_warp(&empty[stage]); });
    }
};
