// What a warpgroup keeps of a ring of stages in registers: descriptors and addresses of the first
// stage, counted up for others.
//
//   a step of a warp, beside wgmma  made anew  here   instructions, as counted for 128 x 256 and
//                                                     four stages
//   descriptors, 4 of 64 bits              28     8   the part that tells stages apart is added to
//                                                     32 bits of them
//   addresses of two barriers               5     2
//   wait, load, hand back, count           19    18
//
// `Stages::multiply` makes them from pointers, which the compiler does again for every step, and
// where it cannot see that all threads have the same `group`, it does so in vector registers and
// moves each to a uniform one. So: group comes from __shfl_sync.
#pragma once

#include "sparse_stages.cuh"

template <class S>
struct Reader;

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, Major B, bool PACKED>
struct Reader<Stages<T, GROUPS, BLOCKS, N, STAGES, B, PACKED>> {
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES, B, PACKED>;
    unsigned long long a, b;  // descriptors of the warpgroup's rows of A and of B
    unsigned words, empty;    // addresses: of the thread's word of metadata, of a stage's barrier

    __device__ __forceinline__ Reader(const S& ring, int group, Barrier* barriers)
        : a(k_major<64>(ring.a[0] + group * BLOCKS * 4096)),
          b(S::upper(ring.b[0])),
          words(shared_address(ring.e[0] + group * BLOCKS * 128 + threadIdx.x % 128)),
          empty(shared_address(barriers))
    {
        asm volatile(""
                     : "+r"(words), "+r"(empty));  // the compiler would find them again, each time
    }

    // A descriptor of what lies `bytes` further on.
    static __device__ __forceinline__ unsigned long long
    further(unsigned long long matrix, int bytes)
    {
        return matrix >> 32 << 32 | ((unsigned)matrix + (bytes >> 4));
    }

    // As Stages::multiply.
    __device__ __forceinline__ void
    multiply(typename S::Accumulators& acc, unsigned (&word)[BLOCKS], int s, bool add) const
    {
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i)
            asm volatile("ld.shared.u32 %0, [%1];"
                         : "=r"(word[i])
                         : "r"(words + s * S::E_BYTES + i * 512)
                         : "memory");
        const auto mine = further(a, s * S::A_BYTES), upper = further(b, s * S::B_BYTES),
                   lower = further(upper, S::LOWER);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i)
            Wgmma<N, T, B>::template sparse<0>(
                acc[i], further(mine, i * 4096), upper, word[i], add);
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i)
            Wgmma<N, T, B>::template sparse<1>(
                acc[i], further(mine, i * 4096 + 32), lower, word[i], 1);
        wgmma_commit();
    }

    // As Stages::consume.
    template <class HandBack>
    __device__ __forceinline__ void consume(typename S::Accumulators& acc, Place<STAGES>& at,
                                            int steps, Barrier* full, HandBack hand_back) const
    {
        unsigned word[2][BLOCKS];
        ::consume<2, true>(
            acc, at, 0, steps, full,
            [&](int set, int stage, bool add) { multiply(acc, word[set], stage, add); }, hand_back);
    }
    __device__ __forceinline__ void
    consume(typename S::Accumulators& acc, Place<STAGES>& at, int steps, Barrier* full) const
    {
        consume(acc, at, steps, full, [&](int stage) { hand_back(stage); });
    }

    // The same where all tiles are whole rounds of the ring: each begins with stage 0, and where a
    // stage is, the compiler knows. parity: of the round, from 0 on.
    __device__ __forceinline__ void
    consume_rounds(typename S::Accumulators& acc, unsigned& parity, int steps, Barrier* full) const
    {
        static_assert(STAGES % 2 == 0, "two sets of words of metadata take turns");
        unsigned word[2][BLOCKS];
        for (int step = 0; step < steps; step += STAGES, parity ^= 1)
#pragma unroll
            for (int s = 0; s < STAGES; ++s) {
                const bool first = s == 0 && step == 0;
                wait(&full[s], parity);
                multiply(acc, word[s % 2], s, !first);
                wgmma_wait<1>();
                if (!first) hand_back((s + STAGES - 1) % STAGES);
            }
        wgmma_wait<0>();
        settle(acc);
        hand_back(STAGES - 1);
    }

    // As hand_back_warp.
    __device__ __forceinline__ void hand_back(int stage) const
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(empty + (unsigned)sizeof(Barrier) * stage);
    }
};

// The number of the warpgroup, which the compiler sees to be the same for the threads of a warp.
__device__ __forceinline__ int warpgroup() { return __shfl_sync(~0u, threadIdx.x / 128, 0); }

// ---- main loops of roles.cuh that read by it

template <class S>
struct Counted {
    const Reader<S> reader;
    Place<S::STAGES> at;
    static __device__ __forceinline__ int group() { return warpgroup(); }
    __device__ __forceinline__ Counted(const S& ring, int number, Barrier* empty)
        : reader(ring, number, empty)
    {
    }
    __device__ __forceinline__ void
    operator()(typename S::Accumulators& acc, int steps, Barrier* full)
    {
        reader.consume(acc, at, steps, full);
    }
    template <class HandBack>
    __device__ __forceinline__ void
    operator()(typename S::Accumulators& acc, int steps, Barrier* full, HandBack hand_back)
    {
        reader.consume(acc, at, steps, full, hand_back);
    }
    __device__ __forceinline__ void hand_back(int stage) const { reader.hand_back(stage); }
};

// Steps are whole rounds of the ring.
template <class S>
struct InRounds {
    const Reader<S> reader;
    unsigned parity = 0;
    static __device__ __forceinline__ int group() { return warpgroup(); }
    __device__ __forceinline__ InRounds(const S& ring, int number, Barrier* empty)
        : reader(ring, number, empty)
    {
    }
    __device__ __forceinline__ void
    operator()(typename S::Accumulators& acc, int steps, Barrier* full)
    {
        reader.consume_rounds(acc, parity, steps, full);
    }
};
