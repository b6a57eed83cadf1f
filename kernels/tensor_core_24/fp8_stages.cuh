// Stages of 8-bit operands, as sparse_stages.cuh has them of 16-bit ones: twice the columns of A in as many bytes.
//
//   A   M rows x 64 values    the compressed columns k/2 to k/2 + 63: 64 bytes a row, 64-byte swizzle
//   B   N rows x 128 values   columns k to k + 127 of B^T, which is row-major: 128 bytes a row, 128-byte swizzle
//   E   M/64 x 256 words      metadata: word 128 h + 32 w + l of a block of 64 rows is for lane l of warp w of its
//                             warpgroup, and the columns k + 64 h to k + 64 h + 63
//
//                 K = 128
//              ┌──────────┐
//            N │   B^T    │       multiplied as 2 x BLOCKS wgmma.sp.m64nNk64 by each of GROUPS warpgroups, rows as in
//              └──────────┘       sparse_stages.cuh; 32 bytes of A's row, 64 of B's and 128 words of E each
//
// Template:  GROUPS  warpgroups that multiply
//            BLOCKS  blocks of 64 rows of each; M = 64 * GROUPS * BLOCKS
//            N       columns of the tile of C: 64, 128, 192 or 256
//            STAGES  stages of the ring
#pragma once

#include "consume.cuh"
#include "tma.cuh"
#include "wgmma_eight.cuh"

struct Operands {
    const TensorMap& a;  // compressed values, m x k/2 row-major bytes: boxes of M x 64
    const TensorMap& e;  // metadata, a row of words for every 64 rows of A, 128 for every 64 columns: boxes of M/64 x 256
    const TensorMap& b;  // B^T, n x k row-major bytes: boxes of N x 128; for load_half of N/2 x 128
    const TensorMap& d;  // m x n row-major: boxes of 64 x 64
};

// How L2 shall treat A with its metadata, and B: one is kept, the other may go, or both as L2 likes.
struct Hints {
    Policy a, b;
    __device__ __forceinline__ explicit Hints(int kept)  // 0: neither, 1: A, 2: B
        : a(kept == 0 ? usual() : kept == 1 ? keep() : let_go()), b(kept == 0 ? usual() : kept == 2 ? keep() : let_go())
    {
    }
    static __device__ __forceinline__ Policy usual()
    {
        Policy policy;
        asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
        return policy;
    }
};

template <int GROUPS, int BLOCKS, int N_, int STAGES>
struct Stages {
    static constexpr int M = 64 * GROUPS * BLOCKS, N = N_, K = 128;
    static constexpr int A_BYTES = M * 64, B_BYTES = N * 128, E_BYTES = M * 16, BYTES = A_BYTES + B_BYTES + E_BYTES;
    static_assert(N % 64 == 0 && N <= 256, "a tile has 64, 128, 192 or 256 columns");
    static_assert(M <= 256, "a box of the copy engine has up to 256 rows");
    using Accumulators = float[BLOCKS][N / 2];

    unsigned char b[STAGES][B_BYTES];  // first, because it is swizzled over 1024 bytes
    unsigned char a[STAGES][A_BYTES];
    unsigned e[STAGES][E_BYTES / 4];

    // One thread asks for stage s: columns k to k + 127 of A, for the tile of C that begins at (row, column).
    __device__ __forceinline__ void load(const Operands& from, int s, int row, int column, int k, Barrier* full,
                                         const Hints& hints)
    {
        arrive_expect(full, BYTES);
        tma_load(a[s], from.a, k / 2, row, full, hints.a);
        tma_load(e[s], from.e, 2 * k, row / 64, full, hints.a);
        tma_load(b[s], from.b, k, column, full, hints.b);
    }

    // The same by one of two blocks of a cluster: its own A, and half of the columns of B for both.
    __device__ __forceinline__ void load_half(const Operands& from, int s, int row, int column, int k, Barrier* full,
                                              const Hints& hints, int rank)
    {
        arrive_expect(full, BYTES);
        tma_load(a[s], from.a, k / 2, row, full, hints.a);
        tma_load(e[s], from.e, 2 * k, row / 64, full, hints.a);
        tma_multicast(b[s] + rank * (B_BYTES / 2), from.b, k, column + rank * (N / 2), full, 3, hints.b);
    }

    // A warpgroup's asynchronous share of stage s. add: whether to add to the accumulators or to begin with zero.
    // word: takes the metadata, and is read until the wgmma are done: the next stage needs others.
    __device__ __forceinline__ void multiply(Accumulators& acc, unsigned (&word)[2][BLOCKS], int s, int group, bool add) const
    {
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i) word[h][i] = e[s][(group * BLOCKS + i) * 256 + h * 128 + threadIdx.x % 128];
        const unsigned char* mine = a[s] + group * BLOCKS * 4096;
        wgmma_fence();
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i)
                WgmmaE4m3<N>::sparse(acc[i], k_major<64>(mine + i * 4096 + 32 * h), k_major<128>(b[s] + 64 * h), word[h][i],
                                     h > 0 || add);
        wgmma_commit();
    }

    // A warpgroup multiplies `steps` stages from the ring, at least one, and hands each back, hand_back(stage).
    template <class HandBack>
    __device__ __forceinline__ void consume(Accumulators& acc, Place<STAGES>& at, int steps, int group, Barrier* full,
                                            HandBack hand_back) const
    {
        unsigned word[2][2][BLOCKS];
        ::consume<2, true>(
            acc, at, 0, steps, full,
            [&](int set, int stage, bool add) { multiply(acc, word[set], stage, group, add); }, hand_back);
    }
    __device__ __forceinline__ void consume(Accumulators& acc, Place<STAGES>& at, int steps, int group, Barrier* full,
                                            Barrier* empty) const
    {
        consume(acc, at, steps, group, full, [=](int stage) { hand_back_warp(&empty[stage]); });
    }
};

// The barriers of the ring, by the warp that asks for its stages (consume.cuh).
// hand_backs: how many hand a stage back before it is filled again, each warp that multiplies for itself.
template <int GROUPS, int STAGES>
__device__ __forceinline__ void begin(const Operands& from, Barrier* full, Barrier* empty, int hand_backs = 4 * GROUPS)
{
    ring_begin<GROUPS, STAGES>(full, empty, 1, hand_backs, [&] {
        tma_prefetch(from.a), tma_prefetch(from.e), tma_prefetch(from.b), tma_prefetch(from.d);
    });
}
