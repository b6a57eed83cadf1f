// The epilogue of FP8 kernels that write C from registers: all shared memory is ring.
#pragma once

#include "fp8_stages.cuh"
#include "roles.cuh"
#include "store_registers.cuh"

template <class Out>
struct Registers {
    unsigned char* d;
    int pitch;  // bytes of a row
    const Scales& scales;
    __device__ __forceinline__ void prefetch() const {}
    template <class S>
    __device__ __forceinline__ void
    store(unsigned char*, typename S::Accumulators& acc, int group, const Part& part) const
    {
        Out::write(
            acc, d, pitch, part.row * S::M + group * S::BLOCKS * 64, part.column * S::N, scales);
    }
    __device__ __forceinline__ void finish() const {}
};
